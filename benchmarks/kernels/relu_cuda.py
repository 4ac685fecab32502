"""Honest: CUDA C++ through load_inline, one element a thread step, vectorised by four."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu(const float4 *x, float4 *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        y[i] = make_float4(fmaxf(v.x, 0.f), fmaxf(v.y, 0.f), fmaxf(v.z, 0.f), fmaxf(v.w, 0.f));
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    size_t n = x.numel() / 4;
    relu<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        (const float4 *)x.data_ptr<float>(), (float4 *)y.data_ptr<float>(), n);
    return y;
}
"""

module = load_inline("relu_float4", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
