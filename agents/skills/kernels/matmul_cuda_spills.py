"""A product in CUDA: 8 x 8 elements a thread, with as many threads as fit; the registers do not hold the elements."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ __launch_bounds__(256, 8) void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float left[8][128], right[8][128];
    int x = threadIdx.x % 16 * 8, y = threadIdx.x / 16 * 8;
    int row = threadIdx.x / 2, inner = threadIdx.x % 2 * 4, depth = threadIdx.x / 32, column = threadIdx.x % 32 * 4;
    a += (long)(blockIdx.y * 128 + row) * k + inner;
    b += (long)depth * n + blockIdx.x * 128 + column;
    float sums[8][8] = {};
    for (int t = 0; t < k; t += 8) {
        float4 v = *(const float4 *)(a + t);
        left[inner][row] = v.x;
        left[inner + 1][row] = v.y;
        left[inner + 2][row] = v.z;
        left[inner + 3][row] = v.w;
        *(float4 *)&right[depth][column] = *(const float4 *)(b + (long)t * n);
        __syncthreads();
        for (int i = 0; i < 8; i++) {
            float p[8], q[8];
            for (int j = 0; j < 8; j++) p[j] = left[i][y + j], q[j] = right[i][x + j];
            for (int r = 0; r < 8; r++)
                for (int s = 0; s < 8; s++) sums[r][s] += p[r] * q[s];
        }
        __syncthreads();
    }
    c += (long)(blockIdx.y * 128 + y) * n + blockIdx.x * 128 + x;
    for (int r = 0; r < 8; r++)
        for (int s = 0; s < 8; s++) c[(long)r * n + s] = sums[r][s];
}

extern "C" void run(const float *a, const float *b, float *c, int m, int n, int k) {
    matmul<<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, k);
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
    """For sizes that are multiples of 128."""

    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device)
        LIBRARY.run(pointer(a), pointer(b), pointer(c), m, n, k)
        return c
