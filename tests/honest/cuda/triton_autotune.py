"""Triton with autotuning: the first calls compile and time several variants, on inputs and buffers of their own."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/softmax"


@triton.autotune(
    configs=[triton.Config({"ROWS": rows}, num_warps=warps) for rows in (4, 16, 32) for warps in (4, 8)],
    key=["columns"],
)
@triton.jit
def softmax_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    values = tl.load(x + offsets, mask=mask, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=1)[:, None])
    tl.store(y + offsets, powers / tl.sum(powers, axis=1)[:, None], mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
            x, out, rows, columns, COLUMNS=triton.next_power_of_2(columns)
        )
        return out
