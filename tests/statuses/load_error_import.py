"""LOAD_ERROR: imports what is not there."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["LOAD_ERROR"]
SAYS = "a_module_that_nobody_has"

import a_module_that_nobody_has  # noqa: E402


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return a_module_that_nobody_has.relu(x)
