"""C: both results in one pass; the squares are added with Kahan's compensation, which no fast-math may remove."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level2/residual_rms_norm"
SPEEDUP_AT_LEAST = 1.2

SOURCE = r"""
#include <math.h>

enum { LANES = 16 };

void residual_rms_norm(const float *restrict x, const float *restrict residual, const float *restrict weight,
                       float *restrict y, float *restrict total, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * columns, *b = residual + r * columns;
        float *t = total + r * columns, *out = y + r * columns;
        float sums[LANES] = {0}, losses[LANES] = {0}, sum = 0.0f;
        long whole = columns / LANES * LANES;
        for (long c = 0; c < whole; c += LANES)
            for (int l = 0; l < LANES; l++) {
                float value = a[c + l] + b[c + l];
                t[c + l] = value;
                float term = value * value - losses[l], next = sums[l] + term;
                losses[l] = (next - sums[l]) - term;
                sums[l] = next;
            }
        for (long c = whole; c < columns; c++) {
            t[c] = a[c] + b[c];
            sum += t[c] * t[c];
        }
        for (int width = LANES / 2; width > 0; width /= 2)
            for (int l = 0; l < width; l++) sums[l] += sums[l + width];
        float scale = 1.0f / sqrtf((sums[0] + sum) / (float)columns + 1e-5f);
        for (long c = 0; c < columns; c++) out[c] = t[c] * scale * weight[c];
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "rms_norm.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "rms_norm.so", folder / "rms_norm.c", "-lm"], check=True)
    kernel = ctypes.CDLL(str(folder / "rms_norm.so")).residual_rms_norm
    kernel.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 2
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.kernel = build()

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        tensors = (x, residual, self.weight, y, total)
        self.kernel(*(tensor.data_ptr() for tensor in tensors), *x.shape)
        return y, total
