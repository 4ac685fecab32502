"""WRONG_SHAPE: flattened."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["WRONG_SHAPE"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).flatten()
