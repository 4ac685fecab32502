"""A product in C: 6 x 16 sums in registers, for a panel of b that stays in the cache."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
enum { ROWS = 6, LANES = 16, DEPTH = 256 };

/* For n a multiple of 16; the last rows of a one by one. */
static void tile(const float *restrict a, const float *restrict b, float *restrict c, long rows, long n, long k,
                 long depth) {
    float sums[ROWS][LANES] = {{0.0f}};
    if (rows == ROWS)
        for (long t = 0; t < depth; t++)
            for (int r = 0; r < ROWS; r++)
                for (int l = 0; l < LANES; l++) sums[r][l] += a[r * k + t] * b[t * n + l];
    else
        for (long t = 0; t < depth; t++)
            for (long r = 0; r < rows; r++)
                for (int l = 0; l < LANES; l++) sums[r][l] += a[r * k + t] * b[t * n + l];
    for (long r = 0; r < rows; r++)
        for (int l = 0; l < LANES; l++) c[r * n + l] += sums[r][l];
}

void matmul(const float *restrict a, const float *restrict b, float *restrict c, long m, long n, long k) {
    for (long t = 0; t < k; t += DEPTH) {
        long depth = k - t < DEPTH ? k - t : DEPTH;
        for (long j = 0; j < n; j += LANES)
            for (long i = 0; i < m; i += ROWS)
                tile(a + i * k + t, b + t * n + j, c + i * n + j, m - i < ROWS ? m - i : ROWS, n, k, depth);
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
