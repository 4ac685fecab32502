"""Layer normalisation in CUDA: a block a row, which it keeps in a buffer for the longest row there may be."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__device__ float total(float value, float *parts) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return parts[0] + parts[1] + parts[2] + parts[3];
}

__global__ void layer_norm(const float *x, const float *weight, const float *bias, float *y, int columns) {
    __shared__ float row[12000], parts[4];
    x += (long)blockIdx.x * columns;
    y += (long)blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 128) {
        row[c] = x[c];
        sum += row[c];
    }
    float mean = total(sum, parts) / columns;
    for (int c = threadIdx.x; c < columns; c += 128) {
        float distance = row[c] - mean;
        squares += distance * distance;
    }
    float scale = rsqrtf(total(squares, parts) / columns + 1e-5f);
    for (int c = threadIdx.x; c < columns; c += 128) y[c] = (row[c] - mean) * scale * weight[c] + bias[c];
}

extern "C" void run(const float *x, const float *weight, const float *bias, float *y, int rows, int columns) {
    layer_norm<<<rows, 128>>>(x, weight, bias, y, columns);
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
    """For rows of up to 12000 values."""

    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.run(pointer(x), pointer(self.weight), pointer(self.bias), pointer(y), *x.shape)
        return y
