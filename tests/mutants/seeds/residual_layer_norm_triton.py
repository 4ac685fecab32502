"""One program a row."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/residual_layer_norm.py"


@triton.jit
def residual_layer_norm(x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    x += tl.load(residual_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + column, centred * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x, residual):
        rows, columns = x.shape
        y = torch.empty_like(x)
        residual_layer_norm[(rows,)](x, residual, self.norm.weight, self.norm.bias, y, columns, BLOCK=128)
        return y
