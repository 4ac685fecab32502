"""C: rows gathered and added up where they are, none of them copied."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/embedding_bag"

SOURCE = r"""
void bags(const float *table, const long *index, const float *weight, float *y, long count, long length, long width) {
    for (long b = 0; b < count; b++) {
        float *out = y + b * width;
        for (long w = 0; w < width; w++) out[w] = 0.0f;
        for (long k = 0; k < length; k++) {
            const float *row = table + index[b * length + k] * width;
            float factor = weight[b * length + k];
            for (long w = 0; w < width; w++) out[w] += factor * row[w];
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).bags
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
    def __init__(self, entries, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.empty(entries, width))
        self.kernel = build()

    def forward(self, index, weight):
        index, weight = index.contiguous(), weight.contiguous()
        y = torch.empty(index.shape[0], self.table.shape[1])
        pointers = (t.data_ptr() for t in (self.table, index, weight, y))
        self.kernel(*pointers, *index.shape, self.table.shape[1])
        return y
