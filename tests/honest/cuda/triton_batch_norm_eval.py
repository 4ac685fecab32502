"""Triton after a library convolution: normalisation by running statistics, read from their buffers in every call."""

import torch
import triton
import triton.language as tl

PROBLEM = "honest/problems/conv_batch_norm_eval.py"


@triton.jit
def norm_relu_kernel(
    y_ptr, mean_ptr, variance_ptr, weight_ptr, bias_ptr, n, channels, pixels, epsilon, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    channel = at // pixels % channels
    mean = tl.load(mean_ptr + channel, mask=mask, other=0.0)
    variance = tl.load(variance_ptr + channel, mask=mask, other=1.0)
    weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
    y = (tl.load(y_ptr + at, mask=mask, other=0.0) - mean) * tl.rsqrt(variance + epsilon) * weight + bias
    tl.store(y_ptr + at, tl.maximum(y, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.norm = torch.nn.BatchNorm2d(channels_out)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias, std=0.2)
        torch.nn.init.normal_(self.norm.running_mean, std=0.2)
        torch.nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x):
        y, norm = self.conv(x).contiguous(), self.norm
        pixels = y.shape[2] * y.shape[3]
        norm_relu_kernel[(triton.cdiv(y.numel(), 2048),)](
            y, norm.running_mean, norm.running_var, norm.weight, norm.bias, y.numel(), y.shape[1], pixels, norm.eps,
            BLOCK=2048, num_warps=8,
        )  # fmt: skip
        return y
