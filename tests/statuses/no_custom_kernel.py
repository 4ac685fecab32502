"""NO_CUSTOM_KERNEL: right, by PyTorch's operators alone, where a custom kernel is required."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["NO_CUSTOM_KERNEL"]
PROTOCOL = {"require_custom_kernel": True}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
