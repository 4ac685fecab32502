"""C: normalisation, both products, GELU and the residual in one call, sixteen tokens at a time."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level3/mlp_block"

SOURCE = r"""
#include <math.h>
#include <stdlib.h>

enum { T = 16, W = 16 }; /* tokens and features at a time */
typedef float vec __attribute__((vector_size(64), aligned(4)));

/* y: [T][n] = x: [T][k] @ panels: [n / W, rounded up][k][W], and bias */
static void linear(const float *x, const float *panels, const float *bias, float *y, long k, long n) {
    for (long q = 0; q < n; q += W) {
        const float *panel = panels + q * k;
        long columns = n - q < W ? n - q : W;
        for (int half = 0; half < T; half += T / 2) {
            vec sum[T / 2] = {0};
            for (long p = 0; p < k; p++)
                for (int t = 0; t < T / 2; t++) sum[t] += x[(half + t) * k + p] * *(const vec *)(panel + p * W);
            for (int t = 0; t < T / 2; t++)
                for (long j = 0; j < columns; j++) y[(half + t) * n + q + j] = sum[t][j] + bias[q + j];
        }
    }
}

int mlp(const float *x, const float *norm_weight, const float *norm_bias, const float *up, const float *up_bias,
        const float *down, const float *down_bias, float *y, long tokens, long width, long hidden) {
    float *plain = calloc(T * (2 * width + hidden), sizeof(float));
    if (!plain) return 1;
    float *inner = plain + T * width, *sum = inner + T * hidden;
    for (long first = 0; first < tokens; first += T) {
        long count = tokens - first < T ? tokens - first : T; /* what lies behind is old or zero, and never stored */
        for (long t = 0; t < count; t++) {
            const float *a = x + (first + t) * width;
            float mean = 0.0f, squares = 0.0f;
            for (long c = 0; c < width; c++) mean += a[c];
            mean /= (float)width;
            for (long c = 0; c < width; c++) squares += (a[c] - mean) * (a[c] - mean);
            float scale = 1.0f / sqrtf(squares / (float)width + 1e-5f);
            for (long c = 0; c < width; c++)
                plain[t * width + c] = (a[c] - mean) * scale * norm_weight[c] + norm_bias[c];
        }
        linear(plain, up, up_bias, inner, width, hidden);
        for (long i = 0; i < count * hidden; i++) inner[i] = 0.5f * inner[i] * erfcf(-0.70710678f * inner[i]);
        linear(inner, down, down_bias, sum, hidden, width);
        for (long i = 0; i < count * width; i++) y[first * width + i] = x[first * width + i] + sum[i];
    }
    free(plain);
    return 0;
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "mlp.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]
    subprocess.run(["cc", *flags, "-shared", "-fPIC", "-o", folder / "mlp.so", folder / "mlp.c", "-lm"], check=True)
    kernel = ctypes.CDLL(str(folder / "mlp.so")).mlp
    kernel.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_long] * 3
    return kernel


def pack(weight):
    """Panels of sixteen output features, the last one filled up with zeros."""
    n, k = weight.shape
    return torch.nn.functional.pad(weight, (0, 0, 0, -n % 16)).view(-1, 16, k).transpose(1, 2).contiguous()


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)
        self.kernel = build()
        self.panels = None

    def forward(self, x):
        if self.panels is None:
            self.panels = pack(self.up.weight), pack(self.down.weight)
        x = x.contiguous()
        y = torch.empty_like(x)
        up, down = self.panels
        tensors = (x, self.norm.weight, self.norm.bias, up, self.up.bias, down, self.down.bias, y)
        if self.kernel(*(tensor.data_ptr() for tensor in tensors), *x.shape, self.up.out_features) != 0:
            raise MemoryError("no memory for sixteen tokens")
        return y
