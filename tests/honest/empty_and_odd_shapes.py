"""C over prime sizes with a tail that no vector fills, called for an input without elements too."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "honest/problems/odd_and_empty.py"

SOURCE = r"""
enum { W = 8 };

void relu(const float *x, float *y, long n) {
    long i = 0;
    for (; i + W <= n; i += W)
        for (int j = 0; j < W; j++) y[i + j] = x[i + j] > 0.0f ? x[i + j] : 0.0f;
    for (; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "relu.c").write_text(SOURCE)
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", folder / "relu.so", folder / "relu.c"], check=True)
    kernel = ctypes.CDLL(str(folder / "relu.so")).relu
    kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x, cache):
        joined = x.new_empty(cache.shape[0] + x.shape[0], x.shape[1])
        self.kernel(cache.data_ptr(), joined.data_ptr(), cache.numel())
        self.kernel(x.contiguous().data_ptr(), joined[cache.shape[0] :].data_ptr(), x.numel())
        return joined, torch.empty_like(cache).copy_(cache).mul_(2)
