"""One warp a row."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/cross_entropy.py"

kernels = Kernels(r"""
extern "C" __global__ void cross_entropy(const float *logits, const long long *targets, float *loss,
                                         int rows, int classes) {
    __shared__ float row[32];
    int t = threadIdx.x;
    row[t] = t < classes ? logits[blockIdx.x * classes + t] : -INFINITY;
    __syncthreads();
    if (t == 0) {
        float largest = row[0], sum = 0.0f;
        for (int j = 1; j < classes; j++) largest = fmaxf(largest, row[j]);
        for (int j = 0; j < classes; j++) sum += expf(row[j] - largest);
        atomicAdd(loss, (largest + logf(sum) - row[targets[blockIdx.x]]) / rows);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        loss = torch.zeros((), dtype=logits.dtype, device=logits.device)
        kernels.launch("cross_entropy", (logits.shape[0],), (32,), logits, targets, loss, *logits.shape)
        return loss
