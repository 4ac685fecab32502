"""WRONG_VALUE: a leaky ReLU."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["WRONG_VALUE"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, 0.1)
