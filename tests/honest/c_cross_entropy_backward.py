"""C: probabilities formed in place of the gradient, the label's own set right at the end."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/cross_entropy_backward"

SOURCE = r"""
#include <math.h>

void backward(const float *gradient, const float *x, const long *label, float *y, long rows, long classes) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * classes;
        float *b = y + r * classes, top = -INFINITY;
        if (label[r] < 0) {
            for (long c = 0; c < classes; c++) b[c] = 0.0f;
            continue;
        }
        double sum = 0.0;
        for (long c = 0; c < classes; c++) top = a[c] > top ? a[c] : top;
        for (long c = 0; c < classes; c++) sum += b[c] = expf(a[c] - top);
        double share = 1.0 / sum;
        for (long c = 0; c < classes; c++) b[c] = (float)((b[c] * share - (c == label[r])) * gradient[r]);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).backward
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, gradient, x, label):
        gradient, x, label = gradient.contiguous(), x.contiguous(), label.contiguous()
        y = torch.empty_like(x)
        self.kernel(*(t.data_ptr() for t in (gradient, x, label, y)), *x.shape)
        return y
