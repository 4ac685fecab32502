"""A linear layer, Swish and the row's maximum as operators of the library."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)

    def forward(self, x):
        return F.silu(self.linear(x)).amax(dim=1)
