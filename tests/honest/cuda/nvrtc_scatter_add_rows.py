"""NVRTC: rows added by atomics where an index sends them, in another order in every call."""

import torch

PROBLEM = "core/level1/scatter_add_rows"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256)
add_rows(const float *x, const long long *index, float *y, int rows, int width) {
    int lane = threadIdx.x % 32;
    for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < rows; row += gridDim.x * 8) {
        const float *from = x + (long long)row * width;
        float *to = y + index[row] * width;
        for (int c = lane; c < width; c += 32) atomicAdd(to + c, from[c]);
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
            self.kernel = torch.cuda._compile_kernel(SOURCE, "add_rows")
        rows, width = x.shape
        y = x.new_zeros(self.places, width)
        grid = (min(-(-rows // 8), 132 * 64), 1, 1)
        self.kernel(grid, (256, 1, 1), [x.contiguous(), index.contiguous(), y, rows, width])
        return y
