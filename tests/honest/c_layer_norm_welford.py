"""C: mean and variance in one pass by Welford's recurrence, sixteen of them side by side, merged by Chan's formula."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/layer_norm"

SOURCE = r"""
#include <math.h>

enum { LANES = 16 };

static void merge(float *count, float *mean, float *m2, float other_count, float other_mean, float other_m2) {
    float total = *count + other_count, delta = other_mean - *mean;
    *mean += delta * (other_count / total);
    *m2 += other_m2 + delta * delta * (*count * other_count / total);
    *count = total;
}

void layer_norm(const float *restrict x, const float *restrict weight, const float *restrict bias,
                float *restrict y, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * columns;
        float *b = y + r * columns;
        float means[LANES] = {0}, m2s[LANES] = {0};
        long steps = columns / LANES;
        for (long s = 0; s < steps; s++) {
            float share = 1.0f / (float)(s + 1);
            for (int l = 0; l < LANES; l++) {
                float value = a[s * LANES + l], delta = value - means[l];
                means[l] += delta * share;
                m2s[l] += delta * (value - means[l]);
            }
        }
        float count = 0.0f, mean = 0.0f, m2 = 0.0f;
        for (int l = 0; l < LANES && steps > 0; l++) merge(&count, &mean, &m2, (float)steps, means[l], m2s[l]);
        for (long c = steps * LANES; c < columns; c++) merge(&count, &mean, &m2, 1.0f, a[c], 0.0f);
        float scale = 1.0f / sqrtf(m2 / count + 1e-5f);
        for (long c = 0; c < columns; c++) b[c] = (a[c] - mean) * scale * weight[c] + bias[c];
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "layer_norm.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "layer_norm.so", folder / "layer_norm.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "layer_norm.so")).layer_norm
    kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2
    kernel.restype = None
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), self.weight.data_ptr(), self.bias.data_ptr(), y.data_ptr(), *x.shape)
        return y
