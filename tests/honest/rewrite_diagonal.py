"""A product with a diagonal matrix as a scale for each row: the honest speed of not doing the work."""

import torch

PROBLEM = "honest/problems/diagonal_product.py"
SPEEDUP_AT_LEAST = 5


class ModelNew(torch.nn.Module):
    def forward(self, d, x):
        return d.unsqueeze(1) * x
