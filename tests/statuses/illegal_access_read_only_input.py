"""ILLEGAL_ACCESS: works in place on its input, which is read-only, and is told so."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["ILLEGAL_ACCESS"]
SAYS = "read-only"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp_(min=0)
