"""NVRTC: float4 loads over prime sizes, their tail one by one, and no launch where there is nothing to do."""

import torch

PROBLEM = "honest/problems/odd_and_empty.py"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) relu(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, fours = n / 4;
    if (i < fours) {
        float4 v = ((const float4 *)x)[i];
        ((float4 *)y)[i] = make_float4(fmaxf(v.x, 0.0f), fmaxf(v.y, 0.0f), fmaxf(v.z, 0.0f), fmaxf(v.w, 0.0f));
    } else if (i - fours < n % 4) {
        int tail = 4 * fours + (i - fours);
        y[tail] = fmaxf(x[tail], 0.0f);
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def relu(self, x, y):
        if x.numel() == 0:
            return
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "relu")
        if x.data_ptr() % 16 or y.data_ptr() % 16:  # a float4 must be aligned; the cache's length decides that
            torch.clamp(x, min=0, out=y)
            return
        threads = x.numel() // 4 + x.numel() % 4
        self.kernel((-(-threads // 256), 1, 1), (256, 1, 1), [x, y, x.numel()])

    def forward(self, x, cache):
        joined = x.new_empty(cache.shape[0] + x.shape[0], x.shape[1])
        self.relu(cache.contiguous(), joined[: cache.shape[0]])
        self.relu(x.contiguous(), joined[cache.shape[0] :])
        return joined, 2 * cache
