"""PyTorch operators."""

import torch.nn.functional as F
from torch import nn

PROBLEM = "mutants/problems/strided_conv.py"


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1)

    def forward(self, x):
        columns = F.unfold(x, 3, padding=1, stride=2)
        weight = self.conv.weight.flatten(1)
        y = weight @ columns + self.conv.bias[:, None]
        return y.view(x.shape[0], weight.shape[0], (x.shape[2] + 1) // 2, (x.shape[3] + 1) // 2)
