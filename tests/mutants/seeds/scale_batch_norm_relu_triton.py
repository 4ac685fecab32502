"""One program a plane."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/scale_batch_norm_relu.py"


@triton.jit
def scale_norm_relu(
    x_ptr, scale_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr, y_ptr, channels, plane, BLOCK: tl.constexpr
):
    channel = tl.program_id(0) % channels
    where = tl.arange(0, BLOCK)
    mask = where < plane
    x = tl.load(x_ptr + tl.program_id(0) * plane + where, mask=mask, other=0.0) * tl.load(scale_ptr + channel)
    normal = (x - tl.load(mean_ptr + channel)) / tl.sqrt(tl.load(variance_ptr + channel) + 1e-5)
    y = normal * tl.load(weight_ptr + channel) + tl.load(bias_ptr + channel)
    tl.store(y_ptr + tl.program_id(0) * plane + where, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        n = self.norm
        scale_norm_relu[(batch * channels,)](
            x, self.scale, n.weight, n.bias, n.running_mean, n.running_var, y, channels, height * width, BLOCK=128
        )
        return y
