"""Winograd's F(2x2, 3x3): 2.25 times fewer products, and a rounding error a few times that of a direct convolution."""

import torch
import torch.nn.functional as F

PROBLEM = "core/level2/conv_bias_relu"

INPUT = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
KERNEL = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
OUTPUT = [[1, 1, 1, 0], [0, 1, -1, -1]]


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))
        self.transformed = None

    def transform_weights(self):
        kernel = torch.tensor(KERNEL, dtype=torch.float64, device=self.conv.weight.device)
        weight = kernel @ self.conv.weight.double() @ kernel.t()  # out, in, 4, 4
        return weight.permute(2, 3, 0, 1).reshape(16, *self.conv.weight.shape[:2]).float().contiguous()

    def forward(self, x):
        if self.transformed is None:
            self.transformed = self.transform_weights()
        images, inner, height, width = x.shape
        down, across = -(-height // 2), -(-width // 2)
        padded = F.pad(x, (1, 2 * across - width + 1, 1, 2 * down - height + 1))
        tiles = padded.unfold(2, 4, 2).unfold(3, 4, 2)  # images, in, down, across, 4, 4
        left = x.new_tensor(INPUT)
        tiles = (left @ tiles @ left.t()).permute(4, 5, 1, 0, 2, 3).reshape(16, inner, -1)
        products = torch.bmm(self.transformed, tiles).view(4, 4, -1, images, down, across)
        left = x.new_tensor(OUTPUT)
        y = left @ products.permute(3, 2, 4, 5, 0, 1) @ left.t()  # images, out, down, across, 2, 2
        y = y.transpose(3, 4).reshape(images, -1, 2 * down, 2 * across)[:, :, :height, :width]
        return torch.relu(y + self.bias)
