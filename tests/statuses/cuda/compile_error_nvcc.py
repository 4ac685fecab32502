"""COMPILE_ERROR: CUDA C++ that does not compile, through `load_inline`."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level1/relu"
SLOW = True  # nvcc alone takes 15 s
EXPECT = ["COMPILE_ERROR"]
SAYS = "undeclared_name"

module = load_inline(
    name="broken",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources="#error undeclared_name\n",
    functions=["relu"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.relu(x)
