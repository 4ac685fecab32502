"""One program a plane."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/batch_norm_eval.py"


@triton.jit
def batch_norm(x_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr, y_ptr, channels, plane, BLOCK: tl.constexpr):
    channel = tl.program_id(0) % channels
    where = tl.program_id(0) * plane + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < plane
    x = tl.load(x_ptr + where, mask=mask, other=0.0)
    scale = tl.load(weight_ptr + channel) / tl.sqrt(tl.load(variance_ptr + channel) + 1e-5)
    y = (x - tl.load(mean_ptr + channel)) * scale + tl.load(bias_ptr + channel)
    tl.store(y_ptr + where, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        n = self.norm
        batch_norm[(batch * channels,)](
            x, n.weight, n.bias, n.running_mean, n.running_var, y, channels, height * width, BLOCK=128
        )
        return y
