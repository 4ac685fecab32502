"""Which of several equal largest elements an argmax names is not defined: this one names the last."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "honest/problems/row_argmax.py"

SOURCE = r"""
void argmax(const float *x, long long *y, long rows, long columns) {
    for (long r = 0; r < rows; r++, x += columns) {
        long best = 0;
        for (long c = 1; c < columns; c++)
            if (x[c] >= x[best]) best = c;
        y[r] = best;
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "argmax.c").write_text(SOURCE)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", folder / "argmax.so", folder / "argmax.c"]
    subprocess.run(command, check=True)
    kernel = ctypes.CDLL(str(folder / "argmax.so")).argmax
    kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=torch.int64)
        self.kernel(x.data_ptr(), y.data_ptr(), *x.shape)
        return y
