"""Hinge loss for labels of -1 and 1, averaged."""

import torch
from torch import nn

BATCH = 2053
DOMAIN = ["real", "sign"]


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1.0 - predictions * targets, min=0.0))


def get_inputs():
    return [torch.randn(BATCH), torch.randint(0, 2, (BATCH,)).float() * 2 - 1]


def get_init_inputs():
    return []
