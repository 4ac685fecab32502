"""Cross entropy with integer targets, some of which are to be ignored; a loss for each row and their mean (0-d)."""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 32768
CLASSES = 4096
SIZES = {"gpu": {"ROWS": 32768, "CLASSES": 4096}, "cpu": {"ROWS": 1000, "CLASSES": 517}}


class Model(nn.Module):
    """loss[i] = logsumexp(logits[i]) - logits[i, targets[i]], zero where that is -100; and the mean of the rest."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps logits (ROWS, CLASSES) and targets (ROWS,) to (losses (ROWS,), mean ())."""
        losses = F.cross_entropy(logits, targets, reduction="none", ignore_index=-100)
        return losses, losses.sum() / (targets != -100).sum()


def get_inputs():
    targets = torch.randint(0, CLASSES, (ROWS,))
    ignored = torch.rand(ROWS) < 0.1
    return [2.0 * torch.randn(ROWS, CLASSES), torch.where(ignored, -100, targets)]


def get_init_inputs():
    return []
