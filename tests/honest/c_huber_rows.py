"""C: difference, branch, weight and sum in one pass."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/huber_rows"

SOURCE = r"""
#include <math.h>

void huber(const float *x, const float *target, const float *weight, float *y, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        double sum = 0.0;
        for (long c = 0; c < columns; c++) {
            float d = fabsf(x[r * columns + c] - target[r * columns + c]);
            sum += weight[c] * (d < 1.0f ? 0.5f * d * d : d - 0.5f);
        }
        y[r] = (float)(sum / columns);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).huber
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(columns))
        self.kernel = build()

    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        y = torch.empty(x.shape[0])
        self.kernel(*(t.data_ptr() for t in (x, target, self.weight, y)), *x.shape)
        return y
