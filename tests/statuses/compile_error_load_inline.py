"""COMPILE_ERROR: C++ that does not compile, through `load_inline`."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level1/relu"
EXPECT = ["COMPILE_ERROR"]
SAYS = "undeclared_name"
SLOW = True

SOURCE = "#error undeclared_name\n"

module = load_inline(name="broken", cpp_sources=SOURCE, functions=["relu"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.relu(x)
