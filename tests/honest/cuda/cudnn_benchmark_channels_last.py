"""cuDNN's benchmark mode over channels-last tensors, and a channels-last output."""

import torch
import torch.nn.functional as F

PROBLEM = "core/level2/conv_bias_relu"

torch.backends.cudnn.benchmark = True


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.weight = self.conv.weight.detach().contiguous(memory_format=torch.channels_last)
        y = F.conv2d(x.contiguous(memory_format=torch.channels_last), self.weight, self.bias.flatten(), padding=1)
        return y.relu_()
