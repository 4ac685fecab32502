"""A workspace and an output buffer, allocated at the first call and used again by every later one."""

import torch

PROBLEM = "core/level1/layer_norm"


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))
        self._workspace = {}

    def forward(self, x):
        key = (x.shape, x.dtype, x.device)
        if key not in self._workspace:
            self._workspace[key] = (torch.empty_like(x), torch.empty(x.shape[0], 1, dtype=x.dtype, device=x.device))
        out, mean = self._workspace[key]
        torch.mean(x, dim=1, keepdim=True, out=mean)
        torch.sub(x, mean, out=out)
        scale = torch.rsqrt(out.pow(2).mean(dim=1, keepdim=True) + 1e-5)
        return out.mul_(scale).mul_(self.weight).add_(self.bias)
