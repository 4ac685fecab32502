"""C: row by row up to the diagonal, half of the multiplications."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/triangular_matmul"

SOURCE = r"""
void triangular(const float *a, const float *b, float *c, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float *out = c + i * columns;
        for (long j = 0; j < columns; j++) out[j] = 0.0f;
        for (long k = 0; k <= i; k++) {
            float factor = a[i * rows + k];
            for (long j = 0; j < columns; j++) out[j] += factor * b[k * columns + j];
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).triangular
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty_like(b)
        self.kernel(a.data_ptr(), b.data_ptr(), c.data_ptr(), *b.shape)
        return c
