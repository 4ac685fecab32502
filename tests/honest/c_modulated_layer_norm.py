"""C: normalisation, scale and shift in one pass a row; the small product stays PyTorch's."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level2/modulated_layer_norm"

SOURCE = r"""
#include <math.h>

void modulate(const float *x, const float *both, float *y, long batch, long tokens, long width) {
    for (long r = 0; r < batch * tokens; r++) {
        const float *a = x + r * width, *scale = both + r / tokens * 2 * width, *shift = scale + width;
        double sum = 0.0, square = 0.0;
        for (long c = 0; c < width; c++) sum += a[c];
        float mean = (float)(sum / width);
        for (long c = 0; c < width; c++) square += (double)(a[c] - mean) * (a[c] - mean);
        float inverse = (float)(1.0 / sqrt(square / width + 1e-6));
        for (long c = 0; c < width; c++) y[r * width + c] = (a[c] - mean) * inverse * (1.0f + scale[c]) + shift[c];
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).modulate
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, width, condition):
        super().__init__()
        self.modulation = torch.nn.Linear(condition, 2 * width)
        self.kernel = build()

    def forward(self, x, condition):
        x = x.contiguous()
        both = self.modulation(torch.nn.functional.silu(condition)).contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), both.data_ptr(), y.data_ptr(), *x.shape)
        return y
