"""Two tensors where the reference returns one and the same twice."""

import torch
import torch.nn.functional as F

PROBLEM = "honest/problems/recurrent_cell.py"


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = torch.nn.GRUCell(width, width)

    def forward(self, x, state):
        cell = self.cell
        inputs = F.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, dim=1)
        states = F.linear(state, cell.weight_hh, cell.bias_hh).chunk(3, dim=1)
        reset, update = torch.sigmoid(inputs[0] + states[0]), torch.sigmoid(inputs[1] + states[1])
        candidate = torch.tanh(inputs[2] + reset * states[2])
        state = torch.lerp(candidate, state, update)
        return state, state.clone()
