"""The library's product of the operands as they lie; it takes any strides."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
