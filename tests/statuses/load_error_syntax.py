"""LOAD_ERROR: a syntax error, which the test puts in (`BROKEN_BY`) so that linters can read this file."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["LOAD_ERROR"]
SAYS = "SyntaxError"
BROKEN_BY = ("def forward(self, x):", "def forward(self, x)")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
