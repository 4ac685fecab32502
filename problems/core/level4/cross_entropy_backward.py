"""The gradient of a softmax cross entropy with respect to the logits.

Category: backward.
Each row needs its log-sum-exp before the first gradient, which is as large as the logits: at best a read, or two, and a
write. The label's column is special, and rows to be ignored give zero.
Bound: 2.15 GB.
"""

import torch
from torch import nn

ROWS = 32768
CLASSES = 8192
SIZES = {"gpu": {"ROWS": 32768, "CLASSES": 8192}, "cpu": {"ROWS": 512, "CLASSES": 1024}}


class Model(nn.Module):
    """g[i, j] = (softmax(x[i])[j] - (j == label[i])) * gradient[i], zero where label[i] is -1."""

    def forward(self, gradient: torch.Tensor, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Maps gradient (ROWS,), x (ROWS, CLASSES) and label (ROWS,) to g of x's shape."""
        probability = torch.softmax(x, dim=1)
        column = torch.arange(x.shape[1], device=x.device)
        hit = (column == label.unsqueeze(1)).to(x.dtype)
        return (probability - hit) * (gradient * (label >= 0)).unsqueeze(1)


def get_inputs() -> list[torch.Tensor]:
    label = torch.randint(0, CLASSES, (ROWS,))
    label = torch.where(torch.rand(ROWS) < 0.1, -1, label)
    return [8.0 * torch.randn(ROWS), 3.0 * torch.randn(ROWS, CLASSES), label]


def get_init_inputs() -> list[int]:
    return []
