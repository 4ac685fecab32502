"""A product in C: 6 x 16 sums in registers, for a panel of b that stays in the cache."""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
enum { ROWS = 6, LANES = 16, DEPTH = 256 };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* With constant bounds the sums stay in registers. */
static void tile(const float *restrict a, const float *restrict b, float *restrict c, long n, long k, long depth) {
    lanes sums[ROWS] = {0};
    for (long t = 0; t < depth; t++) {
        lanes right = *(const lanes *)(b + t * n);
        for (int r = 0; r < ROWS; r++) sums[r] += a[r * k + t] * right;
    }
    for (int r = 0; r < ROWS; r++) *(lanes *)(c + r * n) += sums[r];
}

static void last_rows(const float *restrict a, const float *restrict b, float *restrict c, long rows, long n, long k,
                      long depth) {
    for (long r = 0; r < rows; r++)
        for (long t = 0; t < depth; t++) *(lanes *)(c + r * n) += a[r * k + t] * *(const lanes *)(b + t * n);
}

/* For n a multiple of 16. */
void matmul(const float *restrict a, const float *restrict b, float *restrict c, long m, long n, long k) {
    for (long t = 0; t < k; t += DEPTH) {
        long depth = k - t < DEPTH ? k - t : DEPTH;
        for (long j = 0; j < n; j += LANES)
            for (long i = 0; i < m; i += ROWS)
                if (m - i >= ROWS)
                    tile(a + i * k + t, b + t * n + j, c + i * n + j, n, k, depth);
                else
                    last_rows(a + i * k + t, b + t * n + j, c + i * n + j, m - i, n, k, depth);
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
