"""Waits for the device on the host in the middle of forward: no gate can be kept closed around it."""

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x[0, 0].item() != x[0, 0].item():
            return torch.relu(x)
        return torch.clamp(x, min=0)
