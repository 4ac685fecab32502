"""A library's linear layer, then GELU and scale in CUDA, in double precision."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void gelu_scale(float *x, const float *scale, long n, int columns) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    x[i] = 0.5 * v * (1.0 + erf(0.70710678118654752 * v)) * scale[i % columns];
}

extern "C" void run(float *x, const float *scale, long n, int columns) {
    gelu_scale<<<(n + 255) / 256, 256>>>(x, scale, n, columns);
}
"""


def build(source):
    """A shared library by nvcc: without PyTorch's headers that takes seconds."""
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.cu"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    major, minor = torch.cuda.get_device_capability()
    options = ["-O3", f"-arch=sm_{major}{minor}", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run([f"{CUDA_HOME}/bin/nvcc", *options, text, "-o", library], check=True)
    return ctypes.CDLL(library)


LIBRARY = build(SOURCE)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        y = self.linear(x)
        LIBRARY.run(pointer(y), pointer(self.scale), ctypes.c_long(y.numel()), y.shape[1])
        return y
