"""A state-space recurrence whose decay and input depend on the data, step by step (Mamba).

Category: recurrent.
State, decay and input are products of three vectors a step: written out they are sixteen times as large as the input,
and the recurrence is sequential. A scan keeps the state in registers, and can be cut into chunks that are joined after.
Bound: 0.0254 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 16
STEPS = 64
WIDTH = 2048
STATE = 16
SIZES = {
    "gpu": {"BATCH": 16, "STEPS": 64, "WIDTH": 2048, "STATE": 16},
    "cpu": {"BATCH": 2, "STEPS": 32, "WIDTH": 128, "STATE": 8},
}


class Model(nn.Module):
    """h = exp(-step * rate) * h + step * x * b; y = sum over the state of h * c, plus skip * x; step = softplus(d)."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(0.2 + 1.5 * torch.rand(width, state))
        self.skip = nn.Parameter(0.5 + torch.rand(width))

    def forward(self, x: torch.Tensor, d: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """Maps x and d (BATCH, STEPS, WIDTH), b and c (BATCH, STEPS, STATE) to y of x's shape."""
        step = F.softplus(d)
        h = torch.zeros(x.shape[0], *self.rate.shape, dtype=x.dtype, device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            decay = torch.exp(-step[:, t].unsqueeze(2) * self.rate)
            h = decay * h + (step[:, t] * x[:, t]).unsqueeze(2) * b[:, t].unsqueeze(1)
            outputs.append((h * c[:, t].unsqueeze(1)).sum(dim=2) + self.skip * x[:, t])
        return torch.stack(outputs, dim=1)


def get_inputs() -> list[torch.Tensor]:
    x, d = torch.randn(BATCH, STEPS, WIDTH), torch.randn(BATCH, STEPS, WIDTH) - 1.0
    return [x, d, 0.6 * torch.randn(BATCH, STEPS, STATE), 0.6 * torch.randn(BATCH, STEPS, STATE)]


def get_init_inputs() -> list[int]:
    return [WIDTH, STATE]
