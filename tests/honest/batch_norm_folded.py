"""Running statistics folded into the convolution at the first call: the buffers are read once and must be right."""

import torch
import torch.nn.functional as F

PROBLEM = "honest/problems/conv_batch_norm_eval.py"


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.norm = torch.nn.BatchNorm2d(channels_out)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias, std=0.2)
        torch.nn.init.normal_(self.norm.running_mean, std=0.2)
        torch.nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        self.folded = None

    def fold(self):
        norm, conv = self.norm, self.conv
        scale = norm.weight.double() * torch.rsqrt(norm.running_var.double() + norm.eps)
        weight = conv.weight.double() * scale.view(-1, 1, 1, 1)
        bias = (conv.bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
        return weight.to(conv.weight.dtype), bias.to(conv.weight.dtype)

    def forward(self, x):
        if self.folded is None:
            self.folded = self.fold()
        return F.conv2d(x, *self.folded, padding=1).relu_()
