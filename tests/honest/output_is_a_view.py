"""Returns a view into a larger allocation, at an offset that is not a multiple of the cache line."""

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        storage = torch.empty(x.numel() + 7, dtype=x.dtype, device=x.device)
        out = storage[3 : 3 + x.numel()].view(x.shape)
        torch.clamp(x, min=0, out=out)
        return out
