"""C with OpenMP, compiled with cc and called through ctypes: worker threads that stay alive between calls."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/relu"

SOURCE = r"""
void relu(const float *restrict x, float *restrict y, long n) {
    #pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "relu.c").write_text(SOURCE)
    library = folder / "relu.so"
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", str(library), str(folder / "relu.c")], check=True)
    relu = ctypes.CDLL(str(library)).relu
    relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    relu.restype = None
    return relu


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = build()

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        self.relu(x.data_ptr(), out.data_ptr(), x.numel())
        return out
