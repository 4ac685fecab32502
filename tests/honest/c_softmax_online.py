"""C: maximum and sum in one pass (online softmax), and an exponential of its own with a relative error of 2e-7."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/softmax"

SOURCE = r"""
#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* exp(x) for x <= 0: x = n * ln 2 + f with ln 2 in two parts; the series of exp(f) up to f**7; 2**n by the exponent */
static inline float exp_negative(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* the nearest integer */
    float f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * f + 1.38888889e-3f;
    p = p * f + 8.33333333e-3f;
    p = p * f + 4.16666667e-2f;
    p = p * f + 1.66666667e-1f;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    int bits = ((int)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

void softmax(const float *restrict x, float *restrict y, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * columns;
        float *b = y + r * columns;
        float tops[LANES], sums[LANES];
        for (int l = 0; l < LANES; l++) tops[l] = -INFINITY, sums[l] = 0.0f;
        long whole = columns / LANES * LANES;
        for (long c = 0; c < whole; c += LANES)
            for (int l = 0; l < LANES; l++) {
                float value = a[c + l], top = value > tops[l] ? value : tops[l];
                /* One of the two exponents is zero: a single exponential rescales or adds. */
                float power = exp_negative(-fabsf(value - tops[l]));
                sums[l] = value > tops[l] ? sums[l] * power + 1.0f : sums[l] + power;
                tops[l] = top;
            }
        float top = -INFINITY, sum = 0.0f;
        for (int l = 0; l < LANES; l++) top = tops[l] > top ? tops[l] : top;
        for (long c = whole; c < columns; c++) top = a[c] > top ? a[c] : top;
        for (int l = 0; l < LANES; l++) sum += sums[l] * exp_negative(tops[l] - top);
        for (long c = whole; c < columns; c++) sum += exp_negative(a[c] - top);
        float share = 1.0f / sum;
        for (long c = 0; c < columns; c++) b[c] = exp_negative(a[c] - top) * share;
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "softmax.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "softmax.so", folder / "softmax.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "softmax.so")).softmax
    kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), y.data_ptr(), *x.shape)
        return y
