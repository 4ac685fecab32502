"""Token, position and segment embeddings, summed and normalised.

Category: index.
The front of an encoder: three gathers of which one goes all over a large table, a sum and a layer normalisation. In one
kernel a row is read once and written once; operator by operator it makes that way five times.
Bound: 0.56 GB.
"""

import torch
from torch import nn

BATCH = 256
TOKENS = 512
VOCABULARY = 50000
WIDTH = 768
SIZES = {
    "gpu": {"BATCH": 256, "TOKENS": 512, "VOCABULARY": 50000, "WIDTH": 768},
    "cpu": {"BATCH": 4, "TOKENS": 128, "VOCABULARY": 5000, "WIDTH": 256},
}


class Model(nn.Module):
    """y = norm(word[token] + position + segment[kind])."""

    def __init__(self, vocabulary: int, tokens: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.5 * torch.randn(tokens, width))
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.3)

    def forward(self, token: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Maps token and kind (BATCH, TOKENS), integers, to y (BATCH, TOKENS, WIDTH)."""
        y: torch.Tensor = self.norm(self.word(token) + self.position + self.segment(kind))
        return y


def get_inputs() -> list[torch.Tensor]:
    # Natural text repeats its common words.
    token = (VOCABULARY * torch.rand(BATCH, TOKENS) ** 4).long().clamp(max=VOCABULARY - 1)
    border = torch.randint(1, TOKENS, (BATCH, 1))
    return [token, (torch.arange(TOKENS) >= border).long()]


def get_init_inputs() -> list[int]:
    return [VOCABULARY, TOKENS, WIDTH]
