"""ILLEGAL_ACCESS: reads address zero."""

import ctypes

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["ILLEGAL_ACCESS"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return torch.relu(x)
