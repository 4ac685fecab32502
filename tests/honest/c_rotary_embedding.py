"""C: both halves of a head turned in one read and one write."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/rotary_embedding"

SOURCE = r"""
void rotate(const float *x, const float *cosine, const float *sine, float *y, long heads, long tokens, long half) {
    for (long h = 0; h < heads; h++)
        for (long t = 0; t < tokens; t++) {
            const float *a = x + (h * tokens + t) * 2 * half, *c = cosine + t * half, *s = sine + t * half;
            float *b = y + (h * tokens + t) * 2 * half;
            for (long i = 0; i < half; i++) {
                b[i] = a[i] * c[i] - a[half + i] * s[i];
                b[half + i] = a[half + i] * c[i] + a[i] * s[i];
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).rotate
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x, cos, sin):
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        y = torch.empty_like(x)
        batch, heads, tokens, width = x.shape
        self.kernel(*(t.data_ptr() for t in (x, cos, sin, y)), batch * heads, tokens, width // 2)
        return y
