"""Honest: the library's product with TF32 switched off, exact fp32."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.backends.cuda.matmul.allow_tf32 = False

    def forward(self, a, b):
        return torch.matmul(a, b)
