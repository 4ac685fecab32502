"""Constructs its layers on the GPU, whose generator draws other numbers: the reference's state fits in."""

import torch

PROBLEM = "core/level3/gated_feed_forward"


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        with torch.device("cuda"):
            self.gate = torch.nn.Linear(width, hidden, bias=False)
            self.up = torch.nn.Linear(width, hidden, bias=False)
            self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))
