"""NVRTC: both halves of a head rotated in one pass by tables that stay in the cache, two axes of the grid."""

import torch

PROBLEM = "core/level1/rotary_embedding"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256)
rotate(const float *x, const float *cosine, const float *sine, float *y, int tokens, int half) {
    long long head = blockIdx.y;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < tokens * half; i += gridDim.x * 256) {
        int token = i / half, pair = i % half;
        long long at = (head * tokens + token) * 2 * half + pair;
        float a = x[at], b = x[at + half], c = cosine[i], s = sine[i];
        y[at] = a * c - b * s;
        y[at + half] = b * c + a * s;
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x, cos, sin):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "rotate")
        batch, heads, tokens, width = x.shape
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        y = torch.empty_like(x)
        grid = (min(-(-tokens * width // 512), 64), batch * heads, 1)
        self.kernel(grid, (256, 1, 1), [x, cos, sin, y, tokens, width // 2])
        return y
