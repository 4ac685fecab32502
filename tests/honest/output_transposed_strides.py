"""Computes the transpose of the product and returns its transpose: right values and shape, column-major strides."""

import torch

PROBLEM = "core/level1/matmul"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.mm(b.t(), a.t()).t()
