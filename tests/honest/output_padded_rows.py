"""Rows padded to a power of two, and the padding cut off by slicing: strides that no contiguous tensor has."""

import torch

PROBLEM = "core/level1/softmax"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        padded = torch.full((rows, columns + 16), float("-inf"), dtype=x.dtype, device=x.device)
        padded[:, :columns] = x
        return torch.softmax(padded, dim=1)[:, :columns]
