"""The last layer of a language model and its loss, token by token.

Category: loss.
The logits are by far the largest tensor of a training step and are wanted for two numbers a row: their log-sum-exp and
the label's own. Computed in tiles of the vocabulary they never need to exist as a whole.
Bound: 0.223 GB, 0.422 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 4096
WIDTH = 1024
VOCABULARY = 50304
SIZES = {
    "gpu": {"TOKENS": 4096, "WIDTH": 1024, "VOCABULARY": 50304},
    "cpu": {"TOKENS": 128, "WIDTH": 128, "VOCABULARY": 3072},
}


class Model(nn.Module):
    """loss[i] = logsumexp(x[i] @ weight.T) - (x[i] @ weight.T)[label[i]]."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.head.weight, std=1.5 / width**0.5)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) and label (TOKENS,) to the loss (TOKENS,)."""
        return F.cross_entropy(self.head(x), label, reduction="none")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, WIDTH), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs() -> list[int]:
    return [WIDTH, VOCABULARY]
