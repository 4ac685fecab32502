"""A product in CUDA: an element a thread, every operand from global memory."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += a[(long)row * k + i] * b[(long)i * n + column];
    c[(long)row * n + column] = sum;
}

extern "C" void run(const float *a, const float *b, float *c, int m, int n, int k) {
    matmul<<<dim3(n / 16, m / 16), dim3(16, 16)>>>(a, b, c, m, n, k);
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
    """For sizes that are multiples of 16."""

    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device)
        LIBRARY.run(pointer(a), pointer(b), pointer(c), m, n, k)
        return c
