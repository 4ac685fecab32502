"""LOAD_ERROR: defines no `ModelNew`."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["LOAD_ERROR"]
SAYS = "ModelNew"


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
