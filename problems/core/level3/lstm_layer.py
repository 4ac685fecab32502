"""An LSTM over 32 steps.

Category: recurrent.
The input's part of the gates is one large product; what remains is a product at every step that must wait for the step
before. Weights could stay on the chip for all steps, and the gates are one pass: as operators each step is a dozen
small kernels.
Bound: 0.184 GB, 0.258 TFLOP.
"""

import torch
from torch import nn

BATCH = 1024
STEPS = 32
WIDTH = 512
HIDDEN = 768
SIZES = {
    "gpu": {"BATCH": 1024, "STEPS": 32, "WIDTH": 512, "HIDDEN": 768},
    "cpu": {"BATCH": 16, "STEPS": 32, "WIDTH": 64, "HIDDEN": 96},
}


class Model(nn.Module):
    """The hidden states of one LSTM layer that starts from zero."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        nn.init.normal_(self.inputs.weight, std=1.0 / width**0.5)
        nn.init.normal_(self.recurrent.weight, std=1.0 / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (STEPS, BATCH, WIDTH) to the hidden states (STEPS, BATCH, HIDDEN)."""
        given = self.inputs(x)
        cell = hidden = torch.zeros_like(given[0, :, : given.shape[2] // 4])
        states = []
        for step in range(x.shape[0]):
            i, f, g, o = (given[step] + self.recurrent(hidden)).chunk(4, dim=1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states)


def get_inputs() -> list[torch.Tensor]:
    return [1.5 * torch.randn(STEPS, BATCH, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HIDDEN]
