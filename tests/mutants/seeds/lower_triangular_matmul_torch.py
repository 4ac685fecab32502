"""Blocks: the upper right one is never touched."""

import torch
from torch import nn

PROBLEM = "mutants/problems/lower_triangular_matmul.py"


class ModelNew(nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        half = n // 2
        c = torch.zeros_like(a)
        c[:half, :half] = a[:half, :half] @ b[:half, :half]
        c[half:, :half] = a[half:, :half] @ b[:half, :half] + a[half:, half:] @ b[half:, :half]
        c[half:, half:] = a[half:, half:] @ b[half:, half:]
        return c
