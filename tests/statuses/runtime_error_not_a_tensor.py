"""RUNTIME_ERROR or WRONG_SHAPE: forward returns nothing."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["RUNTIME_ERROR", "WRONG_SHAPE"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        torch.relu(x)
