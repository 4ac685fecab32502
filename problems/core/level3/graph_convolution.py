"""A layer on a graph: the mean of the neighbours' features, projected and added to the node's own.

Category: graph.
Edges come in no order: gathering copies a row for each of them and scattering adds it where others add too. Sorted by
destination once, a block could sum a node's neighbours in registers; degrees are very uneven.
Bound: 0.151 GB, 0.00859 TFLOP.
"""

import torch
from torch import nn

NODES = 131072
EDGES = 1048576
WIDTH = 128
WIDTH_OUT = 128
SIZES = {
    "gpu": {"NODES": 131072, "EDGES": 1048576, "WIDTH": 128, "WIDTH_OUT": 128},
    "cpu": {"NODES": 2048, "EDGES": 12288, "WIDTH": 64, "WIDTH_OUT": 64},
}


class Model(nn.Module):
    """y = relu(own(x) + neighbour(mean of x over a node's incoming edges))."""

    def __init__(self, width: int, width_out: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width_out)
        self.neighbour = nn.Linear(width, width_out, bias=False)
        nn.init.normal_(self.neighbour.weight, std=2.0 / width**0.5)

    def forward(self, x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
        """Maps x (NODES, WIDTH) and the edges' ends (EDGES,) to y (NODES, WIDTH_OUT)."""
        total = torch.zeros_like(x).index_add(0, destination, x[source])
        ones = torch.ones(destination.shape, dtype=x.dtype, device=x.device)
        degree = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device).index_add(0, destination, ones)
        mean = total / degree.clamp(min=1.0).unsqueeze(1)
        return torch.relu(self.own(x) + self.neighbour(mean))


def get_inputs() -> list[torch.Tensor]:
    # A few nodes have very many edges.
    destination = (NODES * torch.rand(EDGES) ** 2).long().clamp(max=NODES - 1)
    return [torch.randn(NODES, WIDTH), torch.randint(0, NODES, (EDGES,)), destination]


def get_init_inputs() -> list[int]:
    return [WIDTH, WIDTH_OUT]
