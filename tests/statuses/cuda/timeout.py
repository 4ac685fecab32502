"""TIMEOUT: sleeps in forward on the host."""

import time

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["TIMEOUT"]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(3600)
        return torch.relu(x)
