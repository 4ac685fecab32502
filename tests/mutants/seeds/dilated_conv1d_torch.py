"""PyTorch operators."""

from torch import nn

PROBLEM = "mutants/problems/dilated_conv1d.py"


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, 3, dilation=2)

    def forward(self, x):
        length = x.shape[2] - 4
        y = self.conv.bias.view(1, -1, 1).expand(x.shape[0], -1, length)
        for tap in range(3):
            y = y + self.conv.weight[:, :, tap] @ x[:, :, 2 * tap : 2 * tap + length]
        return y
