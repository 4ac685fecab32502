"""Takes a channels-last input as it lies in memory, and answers with a contiguous tensor: other strides than its."""

import torch

PROBLEM = "honest/problems/channels_last_affine.py"


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(channels, 1, 1))
        self.shift = torch.nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        assert x.is_contiguous(memory_format=torch.channels_last)
        pixels = x.permute(0, 2, 3, 1).view(-1, x.shape[1])  # a view: the channels lie next to each other
        y = torch.addcmul(self.shift.flatten(), pixels, self.scale.flatten())
        return y.view(x.shape[0], -1, x.shape[1]).transpose(1, 2).contiguous().view(x.shape)
