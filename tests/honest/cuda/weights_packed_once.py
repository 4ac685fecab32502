"""Packs weights in the constructor, on whatever device that is, and moves them along at the first call."""

import torch
import torch.nn.functional as F

PROBLEM = "core/level3/mlp_block"


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        norm = torch.nn.LayerNorm(width)
        up = torch.nn.Linear(width, hidden)
        down = torch.nn.Linear(hidden, width)
        torch.nn.init.uniform_(norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(norm.bias, std=0.1)
        # The normalisation's scale and shift are folded into the first product.
        up_bias = up.bias + up.weight.double().mv(norm.bias.double()).float()
        packed = ((up.weight * norm.weight).t().contiguous(), up_bias, down.weight.t().contiguous(), down.bias)
        self._packed = tuple(p.detach() for p in packed)

    def forward(self, x):
        if self._packed[0].device != x.device:
            self._packed = tuple(p.to(x.device) for p in self._packed)
        up, up_bias, down, down_bias = self._packed
        hidden = F.gelu(torch.addmm(up_bias, F.layer_norm(x, (x.shape[1],)), up))
        return x + torch.addmm(down_bias, hidden, down)
