"""A softmax over each of many segments of very different length.

Category: scatter.
Segments are runs of a sorted index: some hold one element, some hundreds of thousands. By scatter it takes a maximum, a
sum and two gathers over everything; a block can take whole segments, if the long ones are shared among several.
Bound: 0.268 GB.
"""

import torch
from torch import nn

ELEMENTS = 16777216
SEGMENTS = 262144
SIZES = {"gpu": {"ELEMENTS": 16777216, "SEGMENTS": 262144}, "cpu": {"ELEMENTS": 262144, "SEGMENTS": 4096}}


class Model(nn.Module):
    """y[i] = exp(x[i]) / sum over j of the same segment of exp(x[j]), times the root of the segment's length."""

    def __init__(self, segments: int) -> None:
        super().__init__()
        self.segments = segments

    def forward(self, x: torch.Tensor, segment: torch.Tensor) -> torch.Tensor:
        """Maps x and segment (ELEMENTS,), the latter sorted, to y of their shape."""
        zeros = torch.zeros(self.segments, dtype=x.dtype, device=x.device)
        largest = torch.full_like(zeros, float("-inf")).scatter_reduce(0, segment, x, "amax")
        e = torch.exp(x - largest[segment])
        total = zeros.index_add(0, segment, e)
        length = zeros.index_add(0, segment, torch.ones_like(x))
        return e * (length.sqrt() / total.clamp(min=1e-30))[segment]


def get_inputs() -> list[torch.Tensor]:
    segment = (SEGMENTS * torch.rand(ELEMENTS) ** 2).long().clamp(max=SEGMENTS - 1).sort().values
    return [2.0 * torch.randn(ELEMENTS), segment]


def get_init_inputs() -> list[int]:
    return [SEGMENTS]
