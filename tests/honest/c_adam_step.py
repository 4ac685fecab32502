"""C: a step of Adam in one pass over four tensors."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/adam_step"

SOURCE = r"""
#include <math.h>

void step(const float *p, const float *g, const float *m, const float *r, float *new_p, float *new_m, float *new_r,
          long size) {
    for (long i = 0; i < size; i++) {
        float a = 0.9f * m[i] + 0.1f * g[i], b = sqrtf(0.99f * r[i] * r[i] + 0.01f * g[i] * g[i]);
        new_m[i] = a;
        new_r[i] = b;
        new_p[i] = p[i] - 0.05f * (a / 0.7f / (b + 0.1f) + 0.1f * p[i]);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).step
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, p, g, m, r):
        given = [t.contiguous() for t in (p, g, m, r)]
        new = [torch.empty_like(p) for _ in range(3)]
        self.kernel(*(t.data_ptr() for t in (*given, *new)), p.numel())
        return tuple(new)
