"""Gate and up as one product with their weights side by side; the gate in one Triton kernel."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gate(both_ptr, hidden_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // columns, at % columns
    x = tl.load(both_ptr + row * 2 * columns + column, mask=at < n)
    up = tl.load(both_ptr + row * 2 * columns + columns + column, mask=at < n)
    tl.store(hidden_ptr + at, x * tl.sigmoid(x) * up, mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)
        self.packed = None

    def weights(self):
        """Gate and up side by side, packed again when one of them has changed."""
        state = [(weight.data_ptr(), weight._version) for weight in (self.gate.weight, self.up.weight)]
        if self.packed is None or self.packed[0] != state:
            self.packed = state, torch.cat([self.gate.weight, self.up.weight])
        return self.packed[1]

    def forward(self, x):
        both = F.linear(x, self.weights())
        hidden = torch.empty(both.shape[0], both.shape[1] // 2, device=x.device)
        n, columns = hidden.numel(), hidden.shape[1]
        gate[(triton.cdiv(n, 2048),)](both, hidden, n, columns, BLOCK=2048, num_warps=8)
        return self.down(hidden)
