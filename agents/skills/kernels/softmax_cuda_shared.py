"""Softmax of rows of 128 in CUDA: a block a row, reductions through shared memory."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void softmax(const float *x, float *y) {
    __shared__ float parts[128];
    long at = blockIdx.x * 128L + threadIdx.x;
    float value = x[at];
    parts[threadIdx.x] = value;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + step]);
        __syncthreads();
    }
    float top = parts[0];
    __syncthreads();
    float power = expf(value - top);
    parts[threadIdx.x] = power;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    y[at] = power / parts[0];
}

extern "C" void run(const float *x, float *y, long rows) {
    softmax<<<rows, 128>>>(x, y);
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
        LIBRARY.run(pointer(x), pointer(y), ctypes.c_long(x.shape[0]))
        return y
