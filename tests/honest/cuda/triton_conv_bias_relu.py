"""Triton: the convolution as nine products over shifted pixels, weights packed at the first call, fused epilogue."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level2/conv_bias_relu"


@triton.jit
def conv_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, images, channels_in, channels_out, height, width,
    PIXELS: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    pixels = height * width
    position = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    image, pixel = position // pixels, position % pixels
    h, w = pixel // width, pixel % width
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    total = tl.zeros((PIXELS, OUT), dtype=tl.float32)
    for tap in range(9):
        from_h, from_w = h + tap // 3 - 1, w + tap % 3 - 1
        inside = (image < images) & (from_h >= 0) & (from_h < height) & (from_w >= 0) & (from_w < width)
        source = image * channels_in * pixels + from_h * width + from_w
        for first in range(0, channels_in, IN):
            channel = first + tl.arange(0, IN)
            x_mask = inside[:, None] & (channel[None, :] < channels_in)
            x = tl.load(x_ptr + source[:, None] + channel[None, :] * pixels, mask=x_mask, other=0.0)
            weight_mask = (channel[:, None] < channels_in) & (out[None, :] < channels_out)
            offsets = (tap * channels_in + channel[:, None]) * channels_out + out[None, :]
            weight = tl.load(weight_ptr + offsets, mask=weight_mask, other=0.0)
            total = tl.dot(x, weight, total, input_precision="tf32")
    bias = tl.load(bias_ptr + out, mask=out < channels_out, other=0.0)
    y = tl.maximum(total + bias[None, :], 0.0)
    to = image[:, None] * channels_out * pixels + out[None, :] * pixels + pixel[:, None]
    tl.store(y_ptr + to, y, mask=(image[:, None] < images) & (out[None, :] < channels_out))


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.conv.weight.permute(2, 3, 1, 0).contiguous()  # 3, 3, in, out
        images, channels_in, height, width = x.shape
        channels_out = self.packed.shape[3]
        x, y = x.contiguous(), x.new_empty(images, channels_out, height, width)
        grid = (triton.cdiv(images * height * width, 128), triton.cdiv(channels_out, 64))
        conv_kernel[grid](
            x, self.packed, self.bias, y, images, channels_in, channels_out, height, width,
            PIXELS=128, OUT=64, IN=32, num_warps=8, num_stages=3,
        )  # fmt: skip
        return y
