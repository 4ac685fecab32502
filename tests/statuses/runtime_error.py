"""RUNTIME_ERROR: forward raises."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["RUNTIME_ERROR"]
SAYS = "forward broke"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("forward broke")
