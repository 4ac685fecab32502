"""One block a row, atomic additions."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/segment_sum.py"

kernels = Kernels(r"""
extern "C" __global__ void segment_sum(const float *x, const long long *segment, float *y, int columns) {
    int j = threadIdx.x, row = blockIdx.x;
    if (j < columns) atomicAdd(&y[segment[row] * columns + j], x[row * columns + j]);
}
""")


class ModelNew(nn.Module):
    def forward(self, x, segment):
        y = torch.zeros(12, x.shape[1], dtype=x.dtype, device=x.device)
        kernels.launch("segment_sum", (x.shape[0],), (32,), x, segment, y, x.shape[1])
        return y
