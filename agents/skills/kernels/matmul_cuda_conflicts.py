"""A product in CUDA whose threads read a column of a tile at once: 32 rows in one bank."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x, y = threadIdx.y, first_row = blockIdx.y * 32, first_column = blockIdx.x * 32;
    float sum = 0.0f;
    for (int t = 0; t < k; t += 32) {
        left[y][x] = a[(long)(first_row + y) * k + t + x];
        right[y][x] = b[(long)(t + y) * n + first_column + x];
        __syncthreads();
        for (int i = 0; i < 32; i++) sum += left[x][i] * right[i][y];
        __syncthreads();
    }
    c[(long)(first_row + x) * n + first_column + y] = sum;
}

extern "C" void run(const float *a, const float *b, float *c, int m, int n, int k) {
    matmul<<<dim3(n / 32, m / 32), dim3(32, 32)>>>(a, b, c, m, n, k);
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
    """For sizes that are multiples of 32."""

    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device)
        LIBRARY.run(pointer(a), pointer(b), pointer(c), m, n, k)
        return c
