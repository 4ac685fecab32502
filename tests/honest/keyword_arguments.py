"""Arguments by keyword only, in the constructor and in forward, and a mask of booleans as one side of a product."""

import torch

PROBLEM = "honest/problems/masked_mean_kwargs.py"


class ModelNew(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.floor = options.pop("floor")
        self.weight = torch.nn.Parameter(torch.randn(options.pop("width")))
        assert not options

    def forward(self, *, scale=1.0, mask=None, x):
        chosen = mask.to(x.dtype).unsqueeze(1)
        count = chosen.sum(dim=2).clamp_(min=self.floor)
        return torch.bmm(chosen, x).squeeze(1).mul_(self.weight).mul_(scale / count)
