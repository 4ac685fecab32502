"""C: fixed-point requantisation in 64-bit integers, bit for bit."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/requantise_int32"

SOURCE = r"""
#include <stdint.h>

void requantise(const int32_t *x, const int32_t *multiplier, const int32_t *bias, int8_t *y, long rows, long columns) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) {
            /* The sum wraps around in 32 bits, as PyTorch's does. */
            int32_t sum = (int32_t)((uint32_t)x[r * columns + c] + (uint32_t)bias[c]);
            int64_t code = (((int64_t)sum * multiplier[c] + (1LL << 30)) >> 31) + 3;
            y[r * columns + c] = (int8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
        }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).requantise
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("multiplier", torch.empty(columns, dtype=torch.int32))
        self.register_buffer("bias", torch.empty(columns, dtype=torch.int32))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.int8)
        self.kernel(*(t.data_ptr() for t in (x, self.multiplier, self.bias, y)), *x.shape)
        return y
