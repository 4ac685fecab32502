"""Asks PyTorch for deterministic algorithms, which also fill every new tensor with NaN first, and flushes denormals."""

import torch

PROBLEM = "honest/problems/embedding_mean.py"

torch.use_deterministic_algorithms(True)
torch.set_flush_denormal(True)


class ModelNew(torch.nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(vocabulary, width))

    def forward(self, indices):
        y = torch.empty(indices.shape[0], self.table.shape[1])
        for start in range(0, len(indices), 64):
            part = indices[start : start + 64]
            torch.mean(self.table[part], dim=1, out=y[start : start + 64])
        return y
