"""The state-space recurrence as one Triton kernel: a program loops over the steps with its state in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def scan(
    x_ptr, d_ptr, b_ptr, c_ptr, rate_ptr, skip_ptr, y_ptr, steps, width, STATE: tl.constexpr, CHANNELS: tl.constexpr
):
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    entry = tl.arange(0, STATE)
    mask = channel < width
    rate = tl.load(rate_ptr + channel[:, None] * STATE + entry[None, :], mask=mask[:, None], other=0.0)
    skip = tl.load(skip_ptr + channel, mask=mask, other=0.0)
    h = tl.zeros((CHANNELS, STATE), dtype=tl.float32)
    first = tl.program_id(0).to(tl.int64) * steps
    for t in range(steps):
        at = (first + t) * width + channel
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        d = tl.load(d_ptr + at, mask=mask, other=0.0)
        step = tl.where(d > 20.0, d, tl.log(1.0 + tl.exp(d)))
        b = tl.load(b_ptr + (first + t) * STATE + entry)
        c = tl.load(c_ptr + (first + t) * STATE + entry)
        h = tl.exp(-step[:, None] * rate) * h + (step * x)[:, None] * b[None, :]
        tl.store(y_ptr + at, tl.sum(h * c[None, :], axis=1) + skip * x, mask=mask)


class ModelNew(torch.nn.Module):
    """For states of a power of two."""

    def __init__(self, width, state):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.rand(width, state))
        self.skip = torch.nn.Parameter(torch.rand(width))

    def forward(self, x, d, b, c):
        x, d, b, c = x.contiguous(), d.contiguous(), b.contiguous(), c.contiguous()
        batch, steps, width = x.shape
        y = torch.empty_like(x)
        grid = (batch, triton.cdiv(width, 32))
        scan[grid](
            x, d, b, c, self.rate, self.skip, y, steps, width, STATE=self.rate.shape[1], CHANNELS=32, num_warps=1
        )
        return y
