"""C: the rows of both projections interleaved in one matrix at the first call, one product, and then a gate in C."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch
import torch.nn.functional as F

PROBLEM = "core/level3/gated_feed_forward"

SOURCE = r"""
#include <math.h>

/* both: [n][2], the gate first; hidden: [n] */
void swish_gate(const float *restrict both, float *restrict hidden, long n) {
    for (long i = 0; i < n; i++) hidden[i] = both[2 * i] / (1.0f + expf(-both[2 * i])) * both[2 * i + 1];
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "gate.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "gate.so", folder / "gate.c", "-lm"], check=True)
    kernel = ctypes.CDLL(str(folder / "gate.so")).swish_gate
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)
        self.kernel = build()
        self.interleaved = None

    def forward(self, x):
        if self.interleaved is None:
            self.interleaved = torch.stack([self.gate.weight, self.up.weight], dim=1).flatten(0, 1).detach()
        both = F.linear(x, self.interleaved)
        hidden = both.new_empty(x.shape[0], both.shape[1] // 2)
        self.kernel(both.data_ptr(), hidden.data_ptr(), hidden.numel())
        return self.down(hidden)
