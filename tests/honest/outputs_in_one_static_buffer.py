"""Outputs are views of one buffer that every call writes anew, one of them expanded, and a part of the weights."""

import torch

PROBLEM = "honest/problems/sums_and_probabilities.py"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(256, 512))
        self.buffer = torch.empty(256 * 512 + 256)

    def forward(self, x):
        probabilities = self.buffer[: x.numel()].view(x.shape)
        sums = self.buffer[x.numel() :].view(256, 1)
        torch.sum(x, 1, keepdim=True, out=sums)
        torch.softmax(x, 1, out=probabilities)
        return {
            "count": int((x > 3).sum()),
            "positive": x[0] > 0,
            "parts": (sums.expand(-1, 64), [probabilities, self.weight[:4]]),
        }
