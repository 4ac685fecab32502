"""The gradient of a 3 x 3 convolution's weights and bias.

Category: backward.
The sum runs over images, rows and columns, hundreds of thousands of terms for each of some ten thousand outputs: the
opposite shape of the forward product. It has to be split over that sum, and the parts added in the end.
Bound: 0.453 GB, 0.0978 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS_IN = 96
CHANNELS_OUT = 96
HEIGHT = 96
WIDTH = 96
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS_IN": 96, "CHANNELS_OUT": 96, "HEIGHT": 96, "WIDTH": 96},
    "cpu": {"BATCH": 4, "CHANNELS_IN": 16, "CHANNELS_OUT": 16, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """The gradients of weight and bias for y = conv(x, weight) + bias, padded by one, over sqrt(terms)."""

    def forward(self, gradient: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps gradient (BATCH, CHANNELS_OUT, HEIGHT, WIDTH) and x to gradients (OUT, IN, 3, 3) and (OUT,)."""
        weight = torch.empty(gradient.shape[1], x.shape[1], 3, 3, dtype=x.dtype, device=x.device)
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, [gradient.shape[1]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True]
        )
        root = (gradient.numel() / gradient.shape[1]) ** 0.5
        return gradients[1] / root, gradients[2] / root


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS_OUT, HEIGHT, WIDTH), torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return []
