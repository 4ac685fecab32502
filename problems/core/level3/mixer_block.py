"""An MLP-Mixer block: an MLP across tokens, then one across channels.

Category: architecture.
The first MLP works on the transposed tensor: as operators two copies, as products none, since either layout can be
read. The hidden tensors need not be written when a block keeps its rows.
Bound: 0.109 GB, 0.0921 TFLOP.
"""

import torch
from torch import nn

BATCH = 128
TOKENS = 196
WIDTH = 512
TOKEN_HIDDEN = 256
HIDDEN = 1536
SIZES = {
    "gpu": {"BATCH": 128, "TOKENS": 196, "WIDTH": 512, "TOKEN_HIDDEN": 256, "HIDDEN": 1536},
    "cpu": {"BATCH": 4, "TOKENS": 49, "WIDTH": 128, "TOKEN_HIDDEN": 64, "HIDDEN": 256},
}


class Model(nn.Module):
    """h = x + tokens(norm1(x).T).T; y = h + channels(norm2(h)), both MLPs with GELU."""

    def __init__(self, tokens: int, width: int, token_hidden: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, token_hidden), nn.GELU(), nn.Linear(token_hidden, tokens))
        self.channels = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y of the same shape."""
        h = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        y: torch.Tensor = h + self.channels(self.norm2(h))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [TOKENS, WIDTH, TOKEN_HIDDEN, HIDDEN]
