"""Partial sums of blocks, added up atomically."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/hinge_loss.py"


@triton.jit
def hinge_loss(predictions_ptr, targets_ptr, loss_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    predictions = tl.load(predictions_ptr + offsets, mask=mask, other=0.0)
    targets = tl.load(targets_ptr + offsets, mask=mask, other=0.0)
    margin = tl.where(mask, 1.0 - predictions * targets, 0.0)
    tl.atomic_add(loss_ptr, tl.sum(tl.maximum(margin, 0.0), axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        loss = torch.zeros((), dtype=predictions.dtype, device=predictions.device)
        n = predictions.numel()
        hinge_loss[(triton.cdiv(n, 256),)](predictions, targets, loss, n, BLOCK=256)
        return loss
