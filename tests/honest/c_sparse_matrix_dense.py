"""C: each entry's row added where it belongs, none written out."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/sparse_matrix_dense"

SOURCE = r"""
void spmm(const float *value, const long *column, const float *x, float *y, long rows, long entries, long width) {
    for (long r = 0; r < rows; r++) {
        float *out = y + r * width;
        for (long w = 0; w < width; w++) out[w] = 0.0f;
        for (long e = 0; e < entries; e++) {
            float factor = value[r * entries + e];
            const float *row = x + column[r * entries + e] * width;
            for (long w = 0; w < width; w++) out[w] += factor * row[w];
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).spmm
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, value, column, x):
        value, column, x = value.contiguous(), column.contiguous(), x.contiguous()
        y = torch.empty(value.shape[0], x.shape[1])
        self.kernel(*(t.data_ptr() for t in (value, column, x, y)), *value.shape, x.shape[1])
        return y
