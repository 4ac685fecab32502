"""Triton between two library convolutions: group normalisation and ReLU, then bias, residual and ReLU, in place."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level3/conv_residual_block"


@triton.jit
def group_norm_relu_kernel(y_ptr, weight_ptr, bias_ptr, each, groups, pixels, BLOCK: tl.constexpr):
    size = each * pixels
    first = y_ptr + tl.program_id(0).to(tl.int64) * size
    channel0 = tl.program_id(0) % groups * each
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, size, BLOCK):
        sums += tl.load(first + begin + lane, mask=begin + lane < size, other=0.0)
    mean = tl.sum(sums, axis=0) / size
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, size, BLOCK):
        mask = begin + lane < size
        centred = tl.where(mask, tl.load(first + begin + lane, mask=mask, other=0.0) - mean, 0.0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, axis=0) / size + 1e-5)
    for begin in range(0, size, BLOCK):
        at = begin + lane
        mask = at < size
        channel = channel0 + at // pixels
        weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
        bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
        y = (tl.load(first + at, mask=mask, other=0.0) - mean) * scale * weight + bias
        tl.store(first + at, tl.maximum(y, 0.0), mask=mask)


@triton.jit
def bias_add_relu_kernel(y_ptr, bias_ptr, x_ptr, n, channels, pixels, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    bias = tl.load(bias_ptr + at // pixels % channels, mask=mask, other=0.0)
    y = tl.load(x_ptr + at, mask=mask, other=0.0) + (tl.load(y_ptr + at, mask=mask, other=0.0) + bias)
    tl.store(y_ptr + at, tl.maximum(y, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = torch.nn.GroupNorm(groups, channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        images, channels, height, width = x.shape
        groups, pixels = self.norm.num_groups, height * width
        inner = self.conv1(x).contiguous()
        group_norm_relu_kernel[(images * groups,)](
            inner, self.norm.weight, self.norm.bias, channels // groups, groups, pixels, BLOCK=4096, num_warps=8
        )
        y = torch.nn.functional.conv2d(inner, self.conv2.weight, padding=1).contiguous()
        bias_add_relu_kernel[(triton.cdiv(y.numel(), 2048),)](
            y, self.conv2.bias, x.contiguous(), y.numel(), channels, pixels, BLOCK=2048, num_warps=8
        )
        return y
