"""C: three reads and two writes an element, one exponential."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/swiglu_backward"

SOURCE = r"""
#include <math.h>

void backward(const float *gradient, const float *h, const float *scale, float *y, long rows, long hidden) {
    for (long r = 0; r < rows; r++) {
        const float *g = gradient + r * hidden, *a = h + r * 2 * hidden, *b = a + hidden;
        float *da = y + r * 2 * hidden, *db = da + hidden;
        for (long i = 0; i < hidden; i++) {
            float gate = 1.0f / (1.0f + expf(-a[i])), inner = g[i] * scale[i];
            da[i] = inner * b[i] * gate * (1.0f + a[i] * (1.0f - gate));
            db[i] = inner * a[i] * gate;
        }
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
    def __init__(self, hidden):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.empty(hidden))
        self.kernel = build()

    def forward(self, gradient, h):
        gradient, h = gradient.contiguous(), h.contiguous()
        y = torch.empty_like(h)
        self.kernel(*(t.data_ptr() for t in (gradient, h, self.scale, y)), *gradient.shape)
        return y
