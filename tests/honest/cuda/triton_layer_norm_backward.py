"""Triton: gradients of input, scale and shift in one read: programs keep sums down their own rows' columns."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level4/layer_norm_backward"

PROGRAMS = 264


@triton.jit
def backward_kernel(
    gradient_ptr, x_ptr, weight_ptr, y_ptr, weights_ptr, biases_ptr, rows, columns, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    of_weight = tl.zeros((BLOCK,), dtype=tl.float32)
    of_bias = tl.zeros((BLOCK,), dtype=tl.float32)
    row = tl.program_id(0).to(tl.int64)
    while row < rows:
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        gradient = tl.load(gradient_ptr + row * columns + column, mask=mask, other=0.0)
        centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
        normed = centred * scale
        inner = gradient * weight
        along = tl.sum(inner, axis=0) / columns + normed * (tl.sum(inner * normed, axis=0) / columns)
        tl.store(y_ptr + row * columns + column, (inner - along) * scale, mask=mask)
        of_weight += gradient * normed
        of_bias += gradient
        row += tl.num_programs(0)
    tl.store(weights_ptr + tl.program_id(0) * columns + column, of_weight, mask=mask)
    tl.store(biases_ptr + tl.program_id(0) * columns + column, of_bias, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, gradient, x):
        gradient, x = gradient.contiguous(), x.contiguous()
        rows, columns = x.shape
        programs = min(rows, PROGRAMS)
        y, weights, biases = torch.empty_like(x), x.new_empty(programs, columns), x.new_empty(programs, columns)
        block = triton.next_power_of_2(columns)
        backward_kernel[(programs,)](
            gradient, x, self.weight, y, weights, biases, rows, columns, BLOCK=block, num_warps=8
        )
        root = rows**0.5
        return y, weights.sum(dim=0) / root, biases.sum(dim=0) / root
