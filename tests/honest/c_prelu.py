"""C: PReLU plane by plane, the slope looked up once for each."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/prelu"

SOURCE = r"""
void prelu(const float *x, const float *slope, float *y, long planes, long channels, long size) {
    for (long p = 0; p < planes; p++) {
        float a = slope[p % channels];
        for (long i = 0; i < size; i++) {
            float v = x[p * size + i];
            y[p * size + i] = v > 0.0f ? v : a * v;
        }
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).prelu
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.empty(channels))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pointers = x.data_ptr(), self.slope.data_ptr(), y.data_ptr()
        self.kernel(*pointers, batch * channels, channels, height * width)
        return y
