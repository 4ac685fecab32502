"""Softmax of rows of 128 in CUDA: a warp a row, four values a lane, reductions by shuffles."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils.cpp_extension import CUDA_HOME

SOURCE = r"""
__global__ void softmax(const float4 *x, float4 *y, long rows) {
    long row = blockIdx.x * 8L + threadIdx.x / 32;
    if (row >= rows) return;
    long at = row * 32 + threadIdx.x % 32;
    float4 v = x[at];
    float top = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    v = make_float4(expf(v.x - top), expf(v.y - top), expf(v.z - top), expf(v.w - top));
    float sum = v.x + v.y + v.z + v.w;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    float share = 1.0f / sum;
    y[at] = make_float4(v.x * share, v.y * share, v.z * share, v.w * share);
}

extern "C" void run(const float *x, float *y, long rows) {
    softmax<<<(rows + 7) / 8, 256>>>((const float4 *)x, (float4 *)y, rows);
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
