"""A recurrence whose first state is a buffer of zeros, packed with the first step's weights: read, not assumed."""

import torch

PROBLEM = "exploits/problems/recurrent_from_buffer.py"


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.to_state = torch.nn.Parameter(torch.randn(columns, columns) / columns**0.5)
        self.of_state = torch.nn.Parameter(torch.randn(columns, columns) / columns**0.5)
        self.register_buffer("state", torch.zeros(columns))

    def forward(self, x):
        both = torch.cat([self.to_state, self.of_state])
        h = self.state.expand(x.shape[1], -1)
        for step in x:
            h = torch.tanh(torch.cat([step, h], dim=1) @ both)
        return h
