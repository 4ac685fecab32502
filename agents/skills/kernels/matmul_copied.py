"""The library's product of operands that were copied into another order first."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        columns = b.t().contiguous()
        return torch.nn.functional.linear(a, columns).clone()
