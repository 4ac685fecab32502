"""C: the sorted segments are runs, each with its maximum, sum and length in a walk of its own."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/segment_softmax"

SOURCE = r"""
#include <math.h>

void segments(const float *x, const long *segment, float *y, long size) {
    for (long first = 0, last; first < size; first = last) {
        float top = -INFINITY;
        double sum = 0.0;
        for (last = first; last < size && segment[last] == segment[first]; last++) top = x[last] > top ? x[last] : top;
        for (long i = first; i < last; i++) sum += y[i] = expf(x[i] - top);
        float factor = (float)(sqrt((double)(last - first)) / sum);
        for (long i = first; i < last; i++) y[i] *= factor;
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).segments
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, segments):
        super().__init__()
        self.kernel = build()

    def forward(self, x, segment):
        x, segment = x.contiguous(), segment.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), segment.data_ptr(), y.data_ptr(), x.numel())
        return y
