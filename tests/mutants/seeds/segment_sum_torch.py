"""A product with a one-hot matrix."""

import torch
from torch import nn

PROBLEM = "mutants/problems/segment_sum.py"


class ModelNew(nn.Module):
    def forward(self, x, segment):
        one_hot = (torch.arange(12, device=x.device)[:, None] == segment[None, :]).float()
        return one_hot @ x
