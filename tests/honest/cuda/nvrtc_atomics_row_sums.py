"""NVRTC: sums that meet by atomic additions in whatever order the blocks arrive: rounding noise between equal calls."""

import torch

PROBLEM = "honest/problems/product_row_sums.py"
SPEEDUP_AT_LEAST = 4

SOURCE = r"""
__device__ __forceinline__ float over_warp(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* sums[r] += sum over a slice of x[r, c] * (factors ? factors[c] : 1); blockIdx.y chooses the slice */
extern "C" __global__ void __launch_bounds__(256)
add_rows(const float *x, const float *factors, float *sums, int rows, int columns, int slice, int use_factors) {
    long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    int first = blockIdx.y * slice, last = min(first + slice, columns);
    float sum = 0.0f;
    for (int c = first + threadIdx.x % 32; c < last; c += 32)
        sum += x[row * columns + c] * (use_factors ? factors[c] : 1.0f);
    sum = over_warp(sum);
    if (threadIdx.x % 32 == 0) atomicAdd(&sums[row], sum);
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def add_rows(self, x, factors=None):
        rows, columns = x.shape
        sums = x.new_zeros(rows)
        grid = (-(-rows // 8), -(-columns // 512), 1)
        arguments = [x, sums if factors is None else factors, sums, rows, columns, 512, int(factors is not None)]
        self.kernel(grid, (256, 1, 1), arguments)
        return sums

    def forward(self, a, b):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "add_rows")
        return self.add_rows(a.contiguous(), self.add_rows(b.contiguous()))
