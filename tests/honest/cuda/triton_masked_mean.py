"""Triton: a mask of booleans, arguments by keyword, and a plain number handed on to the kernel."""

import torch
import triton
import triton.language as tl

PROBLEM = "honest/problems/masked_mean_kwargs.py"
SPEEDUP_AT_LEAST = 1.8


@triton.jit
def masked_mean_kernel(
    x_ptr, mask_ptr, weight_ptr, y_ptr, tokens, width, scale, floor, TOKENS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    count = 0.0
    for begin in range(0, tokens, TOKENS):
        token = begin + tl.arange(0, TOKENS)
        chosen = tl.load(mask_ptr + batch * tokens + token, mask=token < tokens, other=0) != 0
        at = (batch * tokens + token[:, None]) * width + channel[None, :]
        x = tl.load(x_ptr + at, mask=chosen[:, None] & (channel[None, :] < width), other=0.0)
        total += tl.sum(x, axis=0)
        count += tl.sum(chosen.to(tl.float32), axis=0)
    weight = tl.load(weight_ptr + channel, mask=channel < width, other=0.0)
    y = scale * total / tl.maximum(count, floor) * weight
    tl.store(y_ptr + batch * width + channel, y, mask=channel < width)


class ModelNew(torch.nn.Module):
    def __init__(self, *, width, floor):
        super().__init__()
        self.floor = floor
        self.weight = torch.nn.Parameter(torch.randn(width))

    def forward(self, *, x, mask, scale):
        batch, tokens, width = x.shape
        x, y = x.contiguous(), x.new_empty(batch, width)
        masked_mean_kernel[(batch, triton.cdiv(width, 128))](
            x, mask.contiguous().view(torch.uint8), self.weight, y, tokens, width, scale, self.floor,
            TOKENS=32, WIDTH=128, num_warps=4,
        )  # fmt: skip
        return y
