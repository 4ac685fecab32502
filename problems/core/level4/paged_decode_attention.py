"""One step of decoding over a cache in pages that a table finds, sequences of different length.

Category: attention.
Keys and values lie in pages of 16 tokens all over a pool. Only a sequence's own pages are to be read, and no more than
its length; the operators gather all of the table's pages into a copy first. Long sequences must be split to fill a GPU.
Bound: 1.07 GB, 0.00215 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
PAGES = 256
POOL = 8192
PAGE = 16
HEADS = 8
GROUP = 4
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 32, "PAGES": 256, "POOL": 8192, "PAGE": 16, "HEADS": 8, "GROUP": 4, "WIDTH": 128},
    "cpu": {"BATCH": 4, "PAGES": 16, "POOL": 96, "PAGE": 16, "HEADS": 2, "GROUP": 4, "WIDTH": 64},
}


class Model(nn.Module):
    """y = softmax(q @ k.T / sqrt(WIDTH), over the first length[i] tokens) @ v, tokens found through the table."""

    def forward(
        self, q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, table: torch.Tensor, length: torch.Tensor
    ) -> torch.Tensor:
        """Maps q (BATCH, HEADS, GROUP, WIDTH), pools (POOL, PAGE, HEADS, WIDTH), table (BATCH, PAGES), length to y."""
        k, v = (pool[table].flatten(1, 2).transpose(1, 2) for pool in (k_pool, v_pool))
        outside = torch.arange(k.shape[2], device=q.device) >= length.view(-1, 1, 1, 1)
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(outside, float("-inf"))
        return torch.softmax(scores, dim=3) @ v


def get_inputs() -> list[torch.Tensor]:
    pool = (POOL, PAGE, HEADS, WIDTH)
    table = torch.randperm(POOL)[: BATCH * PAGES].view(BATCH, PAGES)
    length = 1 + ((PAGES * PAGE - 1) * (0.05 + 0.95 * torch.rand(BATCH))).long()
    return [1.2 * torch.randn(BATCH, HEADS, GROUP, WIDTH), torch.randn(pool), 0.5 * torch.randn(pool), table, length]


def get_init_inputs() -> list[int]:
    return []
