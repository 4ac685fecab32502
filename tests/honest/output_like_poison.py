"""Its outputs are mostly -1, which is what an output slot holds before it is written to."""

import torch

PROBLEM = "honest/problems/minus_one_codes.py"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return -(x > 0).long(), torch.where(x.sum(1) > 40, 0, -1).int()
