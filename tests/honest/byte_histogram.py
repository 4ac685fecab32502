"""C over unsigned bytes: four interleaved tables of counters, added up to exact 64-bit integers."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "honest/problems/byte_histogram.py"

SOURCE = r"""
#include <stdint.h>
#include <string.h>

void histogram(const uint8_t *x, int64_t *counts, int64_t n) {
    int64_t tables[4][256];
    memset(tables, 0, sizeof tables);
    for (int64_t i = 0; i < n; i++) tables[i & 3][x[i]]++;
    for (int v = 0; v < 256; v++) counts[v] = tables[0][v] + tables[1][v] + tables[2][v] + tables[3][v];
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "histogram.c").write_text(SOURCE)
    command = ["cc", "-O3", "-shared", "-fPIC", "-o", folder / "histogram.so", folder / "histogram.c"]
    subprocess.run(command, check=True)
    kernel = ctypes.CDLL(str(folder / "histogram.so")).histogram
    kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x, counts = x.contiguous(), torch.empty(256, dtype=torch.int64)
        self.kernel(x.data_ptr(), counts.data_ptr(), x.numel())
        return counts
