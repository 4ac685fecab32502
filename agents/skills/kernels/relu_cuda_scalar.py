"""ReLU in CUDA: an element a thread, neighbouring threads at neighbouring addresses."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void relu(const float *x, float *y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}

extern "C" void run(const float *x, float *y, long n) {
    relu<<<(n + 255) / 256, 256>>>(x, y, n);
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
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.run(pointer(x), pointer(y), ctypes.c_long(x.numel()))
        return y
