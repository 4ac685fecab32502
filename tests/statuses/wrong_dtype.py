"""WRONG_DTYPE: right, in double precision."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["WRONG_DTYPE"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).double()
