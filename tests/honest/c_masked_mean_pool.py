"""C: only a sentence's own tokens are read."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level2/masked_mean_pool_linear"

SOURCE = r"""
void pool(const float *x, const long *length, float *y, long batch, long tokens, long width) {
    for (long b = 0; b < batch; b++) {
        float *out = y + b * width, share = 1.0f / (float)length[b];
        for (long w = 0; w < width; w++) out[w] = 0.0f;
        for (long t = 0; t < length[b]; t++)
            for (long w = 0; w < width; w++) out[w] += x[(b * tokens + t) * width + w];
        for (long w = 0; w < width; w++) out[w] *= share;
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).pool
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, width, width_out):
        super().__init__()
        self.linear = torch.nn.Linear(width, width_out)
        self.kernel = build()

    def forward(self, x, length):
        x, length = x.contiguous(), length.contiguous()
        mean = torch.empty(x.shape[0], x.shape[2])
        self.kernel(x.data_ptr(), length.data_ptr(), mean.data_ptr(), *x.shape)
        y = self.linear(mean)
        return y * torch.rsqrt(y.pow(2).mean(dim=1, keepdim=True) + 1e-6)
