"""C: log-sum-exp, mean and the label's logit of a row in one go."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/cross_entropy_smoothed"

SOURCE = r"""
#include <math.h>

void loss(const float *x, const long *label, float *y, long rows, long classes) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * classes;
        float top = -INFINITY;
        double sum = 0.0, all = 0.0;
        for (long c = 0; c < classes; c++) top = a[c] > top ? a[c] : top;
        for (long c = 0; c < classes; c++) sum += expf(a[c] - top), all += (double)a[c] - top;
        double chosen = (double)a[label[r]] - top;
        y[r] = (float)(log(sum) - 0.9 * chosen - 0.1 * all / classes);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).loss
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x, label):
        x, label = x.contiguous(), label.contiguous()
        y = torch.empty(x.shape[0])
        self.kernel(x.data_ptr(), label.data_ptr(), y.data_ptr(), *x.shape)
        return y
