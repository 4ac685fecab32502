"""ELU as exp(x) - 1: where all of x is tiny it is off by a rounding of 1, and the reference, by expm1, is not."""

import torch

PROBLEM = "mutants/problems/elu.py"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.exp(x) - 1)
