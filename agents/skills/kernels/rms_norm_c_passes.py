"""The sum, its squares and the products each as a pass over the whole tensor, in C."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>
#include <stdlib.h>

void norm(const float *restrict x, const float *restrict residual, const float *restrict weight, float *restrict y,
          float *restrict total, long rows, long columns) {
    float *scales = malloc(rows * sizeof *scales);
    for (long i = 0; i < rows * columns; i++) total[i] = x[i] + residual[i];
    for (long i = 0; i < rows * columns; i++) y[i] = total[i] * total[i];
    for (long r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (long i = 0; i < columns; i++) sum += y[r * columns + i];
        scales[r] = 1.0f / sqrtf(sum / columns + 1e-5f);
    }
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < columns; i++) y[r * columns + i] = total[r * columns + i] * scales[r];
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < columns; i++) y[r * columns + i] *= weight[i];
    free(scales);
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
