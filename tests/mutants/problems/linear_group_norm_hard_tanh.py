"""A linear layer, group normalisation, clamp to [-2, 2]."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 37
FEATURES_IN = 61
FEATURES_OUT = 48
GROUPS = 6


class Model(nn.Module):
    def __init__(self, features_in, features_out, groups):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.norm = nn.GroupNorm(groups, features_out)

    def forward(self, x):
        return F.hardtanh(self.norm(self.linear(x)), min_val=-2.0, max_val=2.0)


def get_inputs():
    return [torch.randn(BATCH, FEATURES_IN)]


def get_init_inputs():
    return [FEATURES_IN, FEATURES_OUT, GROUPS]
