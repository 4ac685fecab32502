"""The exact float32 product: TF32 switched off by the newer `fp32_precision` setting, inside the submission."""

import torch

PROBLEM = "core/level1/matmul"

torch.backends.cuda.matmul.fp32_precision = "ieee"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
