"""CUDA C++ through `load_inline`, launched on the stream that PyTorch says is current."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level1/relu"
SLOW = True

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float *x, float *y, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

torch::Tensor relu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "expected a contiguous CUDA tensor");
    auto y = torch::empty_like(x);
    const long n = x.numel();
    const int blocks = (int)std::min((n + 255) / 256, 65535L);
    relu_kernel<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

module = load_inline(
    name="relu_current",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.relu(x)
