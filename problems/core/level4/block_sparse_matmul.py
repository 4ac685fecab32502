"""A matrix of 64 x 64 blocks, most of them zero and not stored, times a dense one.

Category: sparsity.
The stored blocks come with their row and column, sorted by row, some rows with many and some with none. The operators
gather a piece of the dense matrix for each block and add the products up by scatter.
Bound: 0.168 GB, 0.0344 TFLOP.
"""

import torch
from torch import nn

BLOCKS = 2048
BLOCK_ROWS = 128
BLOCK_COLUMNS = 128
COLUMNS = 2048
SIZES = {
    "gpu": {"BLOCKS": 2048, "BLOCK_ROWS": 128, "BLOCK_COLUMNS": 128, "COLUMNS": 2048},
    "cpu": {"BLOCKS": 40, "BLOCK_ROWS": 12, "BLOCK_COLUMNS": 12, "COLUMNS": 192},
}


class Model(nn.Module):
    """y = a @ x, a's block (row[i], column[i]) being block[i]; blocks of one place add up."""

    def __init__(self, block_rows: int) -> None:
        super().__init__()
        self.block_rows = block_rows

    def forward(self, block: torch.Tensor, row: torch.Tensor, column: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Maps block (BLOCKS, 64, 64), row, column (BLOCKS,), x (64 * BLOCK_COLUMNS, COLUMNS) to y."""
        products = block @ x.view(-1, 64, x.shape[1])[column]
        y = torch.zeros(self.block_rows, 64, x.shape[1], dtype=x.dtype, device=x.device)
        return y.index_add(0, row, products).view(-1, x.shape[1])


def get_inputs() -> list[torch.Tensor]:
    row = (BLOCK_ROWS * torch.rand(BLOCKS) ** 1.5).long().clamp(max=BLOCK_ROWS - 1).sort().values
    column = torch.randint(0, BLOCK_COLUMNS, (BLOCKS,))
    scale = 0.4 / (64.0 * BLOCKS / BLOCK_ROWS) ** 0.5
    return [torch.randn(BLOCKS, 64, 64), row, column, scale * torch.randn(64 * BLOCK_COLUMNS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return [BLOCK_ROWS]
