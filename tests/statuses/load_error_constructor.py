"""LOAD_ERROR: the constructor raises."""

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["LOAD_ERROR"]
SAYS = "the constructor broke"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("the constructor broke")
