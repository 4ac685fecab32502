"""NVRTC: a row in shared memory, all steps of sums and differences there, one read and one write of the matrix."""

import torch

PROBLEM = "core/level1/hadamard_transform"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(512)
hadamard(const float *x, const float *sign, float *y, int columns) {
    __shared__ float row[8192];
    long long first = (long long)blockIdx.x * columns;
    for (int c = threadIdx.x; c < columns; c += 512) row[c] = sign[c] * x[first + c];
    for (int half = 1; half < columns; half *= 2) {
        __syncthreads();
        for (int pair = threadIdx.x; pair < columns / 2; pair += 512) {
            int low = pair / half * 2 * half + pair % half;
            float a = row[low], b = row[low + half];
            row[low] = a + b;
            row[low + half] = a - b;
        }
    }
    __syncthreads();
    float scale = sqrtf((float)columns);
    for (int c = threadIdx.x; c < columns; c += 512) y[first + c] = row[c] / scale;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.sign = torch.nn.Parameter(torch.where(torch.rand(columns) < 0.5, -1.0, 1.0))
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "hadamard")
        rows, columns = x.shape
        assert columns <= 8192
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel((rows, 1, 1), (512, 1, 1), [x, self.sign, y, columns])
        return y
