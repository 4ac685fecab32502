"""One warp a group, shuffles."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/group_norm.py"

kernels = Kernels(r"""
extern "C" __global__ void group_norm(const float *x, const float *weight, const float *bias, float *y,
                                      int groups, int size, int plane) {
    int count = size * plane, lane = threadIdx.x;
    const float *group = x + blockIdx.x * count;
    float sum = 0.0f, squares = 0.0f;
    for (int i = lane; i < count; i += 32) sum += group[i];
    __shared__ float total;
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane == 0) total = sum;
    __syncthreads();
    float mean = total / count;
    __syncthreads();
    for (int i = lane; i < count; i += 32) squares += (group[i] - mean) * (group[i] - mean);
    for (int step = 16; step > 0; step >>= 1) squares += __shfl_down_sync(0xffffffff, squares, step);
    if (lane == 0) total = squares;
    __syncthreads();
    float scale = 1.0f / sqrtf(total / count + 1e-5f);
    for (int i = lane; i < count; i += 32) {
        int channel = blockIdx.x % groups * size + i / plane;
        y[blockIdx.x * count + i] = (group[i] - mean) * scale * weight[channel] + bias[channel];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        norm = self.norm
        groups = norm.num_groups
        size = channels // groups
        kernels.launch(
            "group_norm", (batch * groups,), (32,), x, norm.weight, norm.bias, y, groups, size, height * width
        )
        return y
