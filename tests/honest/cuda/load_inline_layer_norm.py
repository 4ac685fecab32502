"""CUDA C++ through `load_inline` as libraries write it: a dispatch over types, accumulation types, launch checks."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level1/layer_norm"
SLOW = True

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/AccumulateType.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

template <typename T>
__device__ T over_block(T value, T* shared) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < blockDim.x / 32; w++) value += shared[w];
  __syncthreads();
  return value;
}

template <typename scalar_t>
__global__ void layer_norm_kernel(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                  int64_t columns, double epsilon) {
  using acc_t = at::acc_type<scalar_t, true>;
  __shared__ acc_t shared[32];
  const scalar_t* a = x + blockIdx.x * columns;
  scalar_t* b = y + blockIdx.x * columns;
  acc_t sum = 0, squares = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += static_cast<acc_t>(a[c]);
  const acc_t mean = over_block(sum, shared) / columns;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const acc_t centred = static_cast<acc_t>(a[c]) - mean;
    squares += centred * centred;
  }
  const acc_t scale = ::rsqrt(over_block(squares, shared) / columns + static_cast<acc_t>(epsilon));
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    b[c] = (static_cast<acc_t>(a[c]) - mean) * scale * static_cast<acc_t>(weight[c]) + static_cast<acc_t>(bias[c]);
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double epsilon) {
  TORCH_CHECK(x.is_cuda() && x.dim() == 2 && weight.numel() == x.size(1), "expected a matrix and its weights");
  const c10::cuda::CUDAGuard guard(x.device());
  x = x.contiguous();
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "layer_norm", [&] {
    layer_norm_kernel<scalar_t><<<x.size(0), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(), bias.const_data_ptr<scalar_t>(),
        y.data_ptr<scalar_t>(), x.size(1), epsilon);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return y;
}
"""

module = load_inline(
    name="layer_norm_cuda",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double epsilon);",
    cuda_sources=SOURCE,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return module.layer_norm(x, self.weight, self.bias, 1e-5)
