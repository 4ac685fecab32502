"""Softmax in C with the mathematical library's exponential, a call an element."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>

void softmax(const float *x, float *y, long rows, long columns) {
    for (long r = 0; r < rows; r++, x += columns, y += columns) {
        float top = -INFINITY, sum = 0.0f;
        for (long i = 0; i < columns; i++) top = x[i] > top ? x[i] : top;
        for (long i = 0; i < columns; i++) sum += y[i] = expf(x[i] - top);
        for (long i = 0; i < columns; i++) y[i] /= sum;
    }
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.c"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    subprocess.run(["cc", *["-O2"], "-shared", "-fPIC", text, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(library)


LIBRARY = build(SOURCE)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.softmax(pointer(x), pointer(y), *(ctypes.c_long(size) for size in x.shape))
        return y
