import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }

// One pass over memory: four columns a thread, sixteen bytes a load.
__global__ void gated(const float4* x, const float4* gate, const float4* scale, float4* y, long n, int columns) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
        float4 a = x[i], g = gate[i], s = scale[i % columns];
        y[i] = make_float4(silu(a.x) * g.x * s.x, silu(a.y) * g.y * s.y, silu(a.z) * g.z * s.z, silu(a.w) * g.w * s.w);
    }
}

torch::Tensor gated_silu(torch::Tensor x, torch::Tensor gate, torch::Tensor scale) {
    TORCH_CHECK(x.is_contiguous() && gate.is_contiguous() && x.size(-1) % 4 == 0, "expected rows of 4n floats");
    auto y = torch::empty_like(x);
    long n = x.numel() / 4;
    int blocks = (int)std::min((n + 255) / 256, 65535L);
    gated<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        (const float4*)x.data_ptr<float>(), (const float4*)gate.data_ptr<float>(),
        (const float4*)scale.data_ptr<float>(), (float4*)y.data_ptr<float>(), n, (int)x.size(-1) / 4);
    return y;
}
"""
CPP = "torch::Tensor gated_silu(torch::Tensor x, torch::Tensor gate, torch::Tensor scale);"
extension = load_inline("gated_silu", CPP, CUDA, functions=["gated_silu"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, gate):
        return extension.gated_silu(x, gate, self.scale)
