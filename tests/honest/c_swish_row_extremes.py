"""C: the product is never stored. Swish falls and then rises, so its maximum is at a row's least or largest value."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level2/matmul_bias_swish_row_max"

SOURCE = r"""
#include <math.h>

enum { R = 6, W = 16 };
typedef float vec __attribute__((vector_size(64), aligned(4)));

static float swish(float t) { return t / (1.0f + expf(-t)); }

/* x: [m][k]; weight: [n][k], read W rows at a time through a panel of the caller's ([k][W]) */
void swish_row_max(const float *x, const float *weight, const float *bias, float *panel, float *low, float *y,
                   long m, long k, long n) {
    for (long i = 0; i < m; i++) low[i] = INFINITY, y[i] = -INFINITY;
    for (long q = 0; q < n; q += W) {
        long columns = n - q < W ? n - q : W;
        for (long j = 0; j < W; j++)
            for (long p = 0; p < k; p++) panel[p * W + j] = j < columns ? weight[(q + j) * k + p] : 0.0f;
        for (long i = 0; i < m; i += R) {
            long rows = m - i < R ? m - i : R;
            const float *line[R];
            vec sum[R] = {0};
            for (int r = 0; r < R; r++) line[r] = x + (i + (r < rows ? r : rows - 1)) * k;
            for (long p = 0; p < k; p++)
                for (int r = 0; r < R; r++) sum[r] += line[r][p] * *(const vec *)(panel + p * W);
            for (long r = 0; r < rows; r++)
                for (long j = 0; j < columns; j++) {
                    float t = sum[r][j] + bias[q + j];
                    low[i + r] = t < low[i + r] ? t : low[i + r];
                    y[i + r] = t > y[i + r] ? t : y[i + r];
                }
        }
    }
    for (long i = 0; i < m; i++) y[i] = fmaxf(swish(y[i]), swish(low[i]));
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "rows.c").write_text(SOURCE)
        flags = ["-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", folder / "rows.so", folder / "rows.c", "-lm"], check=True)
        self.kernel = ctypes.CDLL(str(folder / "rows.so")).swish_row_max
        self.kernel.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 3

    def forward(self, x):
        x = x.contiguous()
        (n, k), m = self.linear.weight.shape, x.shape[0]
        panel, low, y = x.new_empty(k, 16), x.new_empty(m), x.new_empty(m)
        tensors = (x, self.linear.weight, self.linear.bias, panel, low, y)
        self.kernel(*(tensor.data_ptr() for tensor in tensors), m, k, n)
        return y
