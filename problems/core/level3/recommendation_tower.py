"""A recommendation model: embedding bags, a dense tower, their interaction, and a top tower.

Category: recommendation.
Gathers from eight tables run beside small products; the interaction is a batch of 9 x 9 dot products. Each part is
short, so that their order and the memory in between decide.
Bound: 0.447 GB, 0.00665 TFLOP.
"""

import torch
from torch import nn

BATCH = 65536
TABLES = 8
ENTRIES = 200000
BAG = 8
WIDTH = 64
DENSE = 13
SIZES = {
    "gpu": {"BATCH": 65536, "TABLES": 8, "ENTRIES": 200000, "BAG": 8, "WIDTH": 64, "DENSE": 13},
    "cpu": {"BATCH": 512, "TABLES": 4, "ENTRIES": 2000, "BAG": 4, "WIDTH": 32, "DENSE": 13},
}


class Model(nn.Module):
    """top(cat(bottom(dense), products of all pairs of bottom(dense) and the tables' sums))."""

    pairs: torch.Tensor

    def __init__(self, tables: int, entries: int, width: int, dense: int) -> None:
        super().__init__()
        self.tables = nn.Parameter(0.5 * torch.randn(tables, entries, width))
        self.bottom = nn.Sequential(nn.Linear(dense, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        top = width + (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(top, 256), nn.ReLU(), nn.Linear(256, 1, bias=False))
        rows, columns = torch.tril_indices(tables + 1, tables + 1, offset=-1, device="cpu")
        self.register_buffer("pairs", rows * (tables + 1) + columns)

    def forward(self, dense: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Maps dense (BATCH, DENSE) and index (BATCH, TABLES, BAG) to scores (BATCH,)."""
        table = torch.arange(index.shape[1], device=index.device).view(1, -1, 1)
        sums = self.tables[table, index].sum(dim=2)
        bottom = self.bottom(dense)
        features = torch.cat((bottom.unsqueeze(1), sums), dim=1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)[:, self.pairs] / features.shape[2] ** 0.5
        y: torch.Tensor = self.top(torch.cat((bottom, products), dim=1)).squeeze(1)
        return y


def get_inputs() -> list[torch.Tensor]:
    index = (ENTRIES * torch.rand(BATCH, TABLES, BAG) ** 3).long().clamp(max=ENTRIES - 1)
    return [torch.log1p(10.0 * torch.rand(BATCH, DENSE).square()) - 1.0, index]


def get_init_inputs() -> list[int]:
    return [TABLES, ENTRIES, WIDTH, DENSE]
