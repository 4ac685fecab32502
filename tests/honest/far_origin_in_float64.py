"""In float64: nearer to the truth than the float32 reference, which is further from it than the fixed tolerance."""

import torch

PROBLEM = "honest/problems/distance_from_far_origin.py"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.origin = torch.nn.Parameter(40000.0 + 10000.0 * torch.rand(3))

    def forward(self, x):
        origin = self.origin.double()
        return ((x.double() + origin) - origin).float()
