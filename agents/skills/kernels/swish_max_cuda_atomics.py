"""A library's linear layer, then Swish and the row's maximum in CUDA: an atomic an element."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__device__ float swish(float t) { return t / (1.0f + __expf(-t)); }

__device__ void atomic_max(float *place, float value) {
    if (value >= 0.0f) atomicMax((int *)place, __float_as_int(value));
    else atomicMin((unsigned *)place, __float_as_uint(value));
}

__global__ void swish_max(const float *x, float *y, int columns) {
    x += (long)blockIdx.x * columns;
    for (int i = threadIdx.x; i < columns; i += 256) atomic_max(&y[blockIdx.x], swish(x[i]));
}

extern "C" void run(const float *x, float *y, int rows, int columns) {
    swish_max<<<rows, 256>>>(x, y, columns);
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

    def forward(self, x):
        x = self.linear(x)
        y = torch.full((x.shape[0],), float("-inf"), device=x.device)
        LIBRARY.run(pointer(x), pointer(y), x.shape[0], x.shape[1])
        return y
