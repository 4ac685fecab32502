import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gated_silu(x_ptr, gate_ptr, scale_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    # One pass over memory; the mask covers the end of the last block.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    gate = tl.load(gate_ptr + i, mask=mask)
    scale = tl.load(scale_ptr + i % columns, mask=mask)
    tl.store(y_ptr + i, x / (1.0 + tl.exp(-x)) * gate * scale, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 2048),)
        gated_silu[grid](x, gate, self.scale, y, x.numel(), x.shape[-1], BLOCK=2048, num_warps=8)
        return y
