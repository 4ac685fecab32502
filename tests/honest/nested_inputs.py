"""A list of tensors, a tuple of numbers, None and a flag go in; the parts are written into one buffer that is kept."""

import torch

PROBLEM = "honest/problems/nested_inputs.py"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.y = None

    def forward(self, parts, factors, bias=None, doubled=False):
        width = sum(part.shape[1] for part in parts)
        if self.y is None or self.y.shape != (parts[0].shape[0], width):
            self.y = parts[0].new_empty(parts[0].shape[0], width)
        start = 0
        for part, factor in zip(parts, factors, strict=True):
            torch.mul(part, 2 * factor if doubled else factor, out=self.y[:, start : start + part.shape[1]])
            start += part.shape[1]
        return self.y if bias is None else self.y + (2 * bias if doubled else bias)
