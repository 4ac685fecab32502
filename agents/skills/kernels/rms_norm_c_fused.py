"""Everything for a row while it is in the cache, in C, with lanes for the sum."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>

enum { LANES = 16 };

/* For columns that are a multiple of 16. */
void norm(const float *restrict x, const float *restrict residual, const float *restrict weight, float *restrict y,
          float *restrict total, long rows, long columns) {
    for (long r = 0; r < rows; r++, x += columns, residual += columns, y += columns, total += columns) {
        float sums[LANES] = {0.0f}, sum = 0.0f;
        for (long i = 0; i < columns; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float value = x[i + l] + residual[i + l];
                total[i + l] = value;
                sums[l] += value * value;
            }
        for (int l = 0; l < LANES; l++) sum += sums[l];
        float scale = 1.0f / sqrtf(sum / columns + 1e-5f);
        for (long i = 0; i < columns; i++) y[i] = total[i] * scale * weight[i];
    }
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.c"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    subprocess.run(["cc", *["-O3", "-march=native"], "-shared", "-fPIC", text, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(library)


LIBRARY = build(SOURCE)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        tensors = (x, residual, self.weight, y, total)
        LIBRARY.norm(*map(pointer, tensors), *(ctypes.c_long(size) for size in x.shape))
        return y, total
