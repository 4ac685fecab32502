"""One program a plane."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/layer_norm_planes.py"


@triton.jit
def layer_norm_planes(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + column, centred * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.norm = nn.LayerNorm((height, width))

    def forward(self, x):
        batch, height, width = x.shape
        y = torch.empty_like(x)
        layer_norm_planes[(batch,)](x, self.norm.weight, self.norm.bias, y, height * width, BLOCK=128)
        return y
