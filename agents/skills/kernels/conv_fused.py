"""The library's convolution; bias and ReLU in one Triton kernel, into a new tensor."""

import torch
import triton
import triton.language as tl


@triton.jit
def bias_relu(x_ptr, bias_ptr, y_ptr, plane, channels, BLOCK: tl.constexpr):
    """A program takes part of one image's one channel (a plane), whose bias is one number."""
    index = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index * plane + at, mask=at < plane) + tl.load(bias_ptr + index % channels)
    tl.store(y_ptr + index * plane + at, tl.maximum(x, 0.0), mask=at < plane)


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))

    def forward(self, x):
        x = self.conv(x).contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        grid = (batch * channels, triton.cdiv(height * width, 4096))
        bias_relu[grid](x, self.bias, y, height * width, channels, BLOCK=4096, num_warps=8)
        return y
