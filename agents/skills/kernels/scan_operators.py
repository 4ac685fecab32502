"""The state-space recurrence in operators: some ten launches a step."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.rand(width, state))
        self.skip = torch.nn.Parameter(torch.rand(width))

    def forward(self, x, d, b, c):
        step = F.softplus(d)
        h = torch.zeros(x.shape[0], *self.rate.shape, device=x.device)
        y = torch.empty_like(x)
        for t in range(x.shape[1]):
            decay = torch.exp(-step[:, t, :, None] * self.rate)
            h = decay * h + (step[:, t] * x[:, t])[:, :, None] * b[:, t, None, :]
            y[:, t] = (h * c[:, t, None, :]).sum(dim=2) + self.skip * x[:, t]
        return y
