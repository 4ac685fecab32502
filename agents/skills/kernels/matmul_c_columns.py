"""A product in C whose inner loop strides through a column of b."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
void matmul(const float *restrict a, const float *restrict b, float *restrict c, long m, long n, long k) {
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++) {
            float sum = 0.0f;
            for (long t = 0; t < k; t++) sum += a[i * k + t] * b[t * n + j];
            c[i * n + j] = sum;
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
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n)
        LIBRARY.matmul(pointer(a), pointer(b), pointer(c), *(ctypes.c_long(size) for size in (m, n, k)))
        return c
