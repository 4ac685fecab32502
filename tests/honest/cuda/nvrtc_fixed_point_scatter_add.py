"""NVRTC: sums of 64-bit integers by atomics, the same to the last bit whatever their order."""

import torch

PROBLEM = "core/level4/fixed_point_scatter_add"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256)
add_codes(const float *x, const long long *index, unsigned long long *y, int rows, int width) {
    int lane = threadIdx.x % 32;
    for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < rows; row += gridDim.x * 8) {
        const float *from = x + (long long)row * width;
        unsigned long long *to = y + index[row] * width;
        for (int c = lane; c < width; c += 32) /* of two's complements the sum is the same */
            atomicAdd(to + c, (unsigned long long)__float2ll_rn(from[c] * 1048576.0f));
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, places):
        super().__init__()
        self.places = places
        self.kernel = None

    def forward(self, x, index):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "add_codes")
        rows, width = x.shape
        y = torch.zeros(self.places, width, dtype=torch.int64, device=x.device)
        grid = (min(-(-rows // 8), 132 * 64), 1, 1)
        self.kernel(grid, (256, 1, 1), [x.contiguous(), index.contiguous(), y, rows, width])
        return y
