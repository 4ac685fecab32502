"""One program a group."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/group_norm.py"


@triton.jit
def group_norm(x_ptr, weight_ptr, bias_ptr, y_ptr, groups, size, plane, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    where = tl.arange(0, BLOCK)
    count = size * plane
    mask = where < count
    x = tl.load(x_ptr + group * count + where, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / count
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / count
    normal = centred / tl.sqrt(variance + 1e-5)
    channel = (group % groups) * size + where // plane
    weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
    tl.store(y_ptr + group * count + where, normal * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        groups = self.norm.num_groups
        size = channels // groups
        group_norm[(batch * groups,)](x, self.norm.weight, self.norm.bias, y, groups, size, height * width, BLOCK=512)
        return y
