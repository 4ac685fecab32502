"""Triton: windows that overlap, of which the border counts as minus infinity; NaN stays NaN."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/max_pool_2d"


@triton.jit
def pool_kernel(x_ptr, y_ptr, n, height, width, out_height, out_width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane, pixel = at // (out_height * out_width), at % (out_height * out_width)
    top, left = pixel // out_width * 2 - 1, pixel % out_width * 2 - 1
    largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for tap in tl.static_range(9):
        h, w = top + tap // 3, left + tap % 3
        inside = (at < n) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        x = tl.load(x_ptr + (plane * height + h) * width + w, mask=inside, other=float("-inf"))
        largest = tl.maximum(largest, x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + at, largest, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        images, channels, height, width = x.shape
        y = x.new_empty(images, channels, (height + 1) // 2, (width + 1) // 2)
        grid = (triton.cdiv(y.numel(), 1024),)
        pool_kernel[grid](x.contiguous(), y, y.numel(), height, width, *y.shape[2:], BLOCK=1024, num_warps=4)
        return y
