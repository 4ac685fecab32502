"""C: running sums kept in double precision, rounded once for each output."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/cumulative_sum"

SOURCE = r"""
void cumulative_sum(const float *x, float *y, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        double sum = 0.0;
        for (long c = 0; c < columns; c++) y[r * columns + c] = (float)(sum += x[r * columns + c]);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).cumulative_sum
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), y.data_ptr(), *x.shape)
        return y
