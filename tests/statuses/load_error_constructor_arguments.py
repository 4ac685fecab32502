"""LOAD_ERROR: the constructor does not take the reference's arguments."""

import torch

PROBLEM = "core/level1/layer_norm"
EXPECT = ["LOAD_ERROR"]
SAYS = "argument"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x
