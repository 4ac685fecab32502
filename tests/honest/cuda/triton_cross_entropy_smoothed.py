"""Triton: a loss of one read of the logits: running maximum, rescaled sum of powers and plain sum side by side."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/cross_entropy_smoothed"


@triton.jit
def cross_entropy_kernel(x_ptr, label_ptr, loss_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), -3.0e38, dtype=tl.float32)  # of each lane; finite, so that no lane subtracts infinities
    powers = tl.zeros((BLOCK,), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, classes, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * classes + column, mask=column < classes, other=float("-inf"))
        highest = tl.maximum(top, x)
        powers = powers * tl.exp(top - highest) + tl.exp(x - highest)
        total += tl.where(column < classes, x, 0.0)
        top = highest
    most = tl.max(top, axis=0)
    sum_of_powers = tl.sum(powers * tl.exp(top - most), axis=0)
    wanted = tl.load(x_ptr + row * classes + tl.load(label_ptr + row))
    # Differences from the maximum, of which none is large where the loss is small.
    loss = tl.log(sum_of_powers) - 0.9 * (wanted - most) - 0.1 * (tl.sum(total, axis=0) / classes - most)
    tl.store(loss_ptr + row, loss)


class ModelNew(torch.nn.Module):
    def forward(self, x, label):
        rows, classes = x.shape
        loss = x.new_empty(rows)
        cross_entropy_kernel[(rows,)](x.contiguous(), label.contiguous(), loss, classes, BLOCK=2048, num_warps=8)
        return loss
