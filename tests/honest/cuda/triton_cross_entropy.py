"""Triton: integer targets with an index to ignore, a long row in several blocks, and a mean of no dimension."""

import torch
import triton
import triton.language as tl

PROBLEM = "honest/problems/cross_entropy_rows.py"


@triton.jit
def cross_entropy_kernel(logits_ptr, targets_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, classes, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * classes + column, mask=column < classes, other=float("-inf"))
        highest = tl.maximum(top, x)
        # A lane that has seen no class yet would subtract infinity from itself.
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        total = total * tl.exp(top - safe) + tl.exp(x - safe)
        top = highest
    most = tl.max(top, axis=0)
    total_of_row = tl.sum(total * tl.exp(top - most), axis=0)
    wanted = tl.load(logits_ptr + row * classes + target, mask=target >= 0, other=0.0)
    loss = tl.where(target == -100, 0.0, tl.log(total_of_row) - (wanted - most))
    tl.store(losses_ptr + row, loss)


class ModelNew(torch.nn.Module):
    def forward(self, logits, targets):
        rows, classes = logits.shape
        logits, targets, losses = logits.contiguous(), targets.contiguous(), logits.new_empty(rows)
        cross_entropy_kernel[(rows,)](logits, targets, losses, classes, BLOCK=1024, num_warps=4)
        return losses, losses.sum() / (targets != -100).sum()
