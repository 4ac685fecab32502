"""OUT_OF_MEMORY: one allocation of a terabyte on the device."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["OUT_OF_MEMORY"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.empty(1 << 38, dtype=x.dtype, device=x.device)[: x.numel()].view(x.shape))
