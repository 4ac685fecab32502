"""A loss for each row, added up atomically."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/cross_entropy.py"


@triton.jit
def cross_entropy(logits_ptr, targets_ptr, loss_ptr, rows, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * classes + column, mask=column < classes, other=-float("inf"))
    target = tl.load(targets_ptr + row)
    top = tl.max(x, axis=0)
    total = tl.log(tl.sum(tl.exp(x - top), axis=0)) + top
    tl.atomic_add(loss_ptr, (total - tl.load(logits_ptr + row * classes + target)) / rows)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        loss = torch.zeros((), dtype=logits.dtype, device=logits.device)
        rows, classes = logits.shape
        cross_entropy[(rows,)](logits, targets, loss, rows, classes, BLOCK=32)
        return loss
