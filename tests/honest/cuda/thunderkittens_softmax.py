"""ThunderKittens: 16 whole rows to a warp, in a tile of registers, with the library's reductions over rows."""

import os

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level1/softmax"
NEEDS = "THUNDERKITTENS_ROOT"
SLOW = True

SOURCE = r"""
#include "kittens.cuh"
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

using namespace kittens;

constexpr int ROWS = 16, COLUMNS = 128, WARPS = 8;
using matrix = gl<float, 1, 1, -1, COLUMNS>;

__global__ void __launch_bounds__(32 * WARPS) softmax_kernel(const __grid_constant__ matrix x,
                                                             const __grid_constant__ matrix y) {
    const int tile = blockIdx.x * WARPS + kittens::warpid();
    if (tile * ROWS >= x.rows()) return;
    rt_fl<ROWS, COLUMNS> values;
    rt_fl<ROWS, COLUMNS>::col_vec most, total;
    warp::load(values, x, {0, 0, tile, 0});
    warp::row_max(most, values);
    warp::sub_row(values, values, most);
    warp::exp(values, values);
    warp::row_sum(total, values);
    warp::div_row(values, values, total);
    warp::store(y, values, {0, 0, tile, 0});
}

torch::Tensor softmax(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2, "expected a contiguous CUDA matrix");
    TORCH_CHECK(x.size(1) == COLUMNS && x.size(0) % ROWS == 0, "expected rows of 128, 16 to a tile");
    auto y = torch::empty_like(x);
    const size_t rows = x.size(0);
    matrix from(x.data_ptr<float>(), nullptr, nullptr, rows, nullptr);
    matrix to(y.data_ptr<float>(), nullptr, nullptr, rows, nullptr);
    const int blocks = (rows / ROWS + WARPS - 1) / WARPS;
    softmax_kernel<<<blocks, 32 * WARPS, 0, c10::cuda::getCurrentCUDAStream()>>>(from, to);
    return y;
}
"""

module = load_inline(
    name="thunderkittens_softmax",
    cpp_sources="torch::Tensor softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["softmax"],
    extra_cuda_cflags=["-std=c++20", "-DKITTENS_HOPPER", "--extended-lambda", "-gencode=arch=compute_90a,code=sm_90a"],
    extra_include_paths=[os.path.join(os.environ["THUNDERKITTENS_ROOT"], "include")],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.softmax(x)
