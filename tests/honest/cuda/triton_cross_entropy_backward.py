"""Triton: a row of logits in registers from its maximum to its gradients; rows to be ignored give zero."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level4/cross_entropy_backward"


@triton.jit
def backward_kernel(gradient_ptr, x_ptr, label_ptr, y_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < classes
    x = tl.load(x_ptr + row * classes + column, mask=mask, other=float("-inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    label = tl.load(label_ptr + row)
    gradient = tl.where(label >= 0, tl.load(gradient_ptr + row), 0.0)
    share = powers / tl.sum(powers, axis=0) - tl.where(column == label, 1.0, 0.0)
    tl.store(y_ptr + row * classes + column, share * gradient, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, gradient, x, label):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, classes = x.shape
        block = triton.next_power_of_2(classes)
        backward_kernel[(rows,)](gradient.contiguous(), x, label.contiguous(), y, classes, BLOCK=block, num_warps=8)
        return y
