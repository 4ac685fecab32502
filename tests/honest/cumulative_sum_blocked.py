"""A two-level scan: a triangular product inside blocks of 64, the blocks' own sums scanned in float64."""

import torch
import torch.nn.functional as F

PROBLEM = "honest/problems/cumulative_sum.py"
BLOCK = 64


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        blocks = F.pad(x, (0, -columns % BLOCK)).view(rows, -1, BLOCK)
        upper = torch.ones(BLOCK, BLOCK, dtype=x.dtype, device=x.device).triu_()
        inner = blocks @ upper
        sums = inner[:, :, -1].double()
        before = (sums.cumsum(dim=1) - sums).to(x.dtype)
        return inner.add_(before.unsqueeze(2)).view(rows, -1)[:, :columns]
