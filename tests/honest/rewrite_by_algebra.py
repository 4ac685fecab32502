"""Row sums of a product as one product with the row sums: an honest rewrite, far more than ten times faster."""

import torch

PROBLEM = "honest/problems/product_row_sums.py"
SPEEDUP_AT_LEAST = 10


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.mv(a, b.sum(dim=1))
