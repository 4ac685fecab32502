"""One tensor for two outputs that the reference returns as a tensor and its copy."""

import torch

PROBLEM = "honest/problems/output_and_state.py"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        state = torch.tanh(x)
        return state, state
