"""`torch.compile` with CUDA graphs: inputs are copied into the graph's own memory; later calls overwrite outputs."""

import torch

PROBLEM = "core/level2/residual_rms_norm"
SLOW = True


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.fused = torch.compile(self.plain, mode="reduce-overhead")

    def plain(self, x, residual):
        total = x + residual
        return total * torch.rsqrt(total.square().mean(dim=1, keepdim=True) + 1e-5) * self.weight, total

    def forward(self, x, residual):
        return self.fused(x, residual)
