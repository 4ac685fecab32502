"""C++ that registers its operator with TORCH_LIBRARY and is loaded as a plain library, not as a Python module."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level2/residual_rms_norm"
SLOW = True

SOURCE = r"""
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

std::tuple<at::Tensor, at::Tensor> residual_rms_norm(
    const at::Tensor &x, const at::Tensor &residual, const at::Tensor &weight, double epsilon) {
  TORCH_CHECK(x.dim() == 2 && x.sizes() == residual.sizes() && weight.numel() == x.size(1), "shapes do not match");
  const auto a = x.contiguous(), b = residual.contiguous(), w = weight.contiguous();
  auto y = at::empty_like(a), total = at::empty_like(a);
  const int64_t columns = a.size(1);
  at::parallel_for(0, a.size(0), 16, [&](int64_t begin, int64_t end) {
    std::vector<double> squares(columns);
    for (int64_t r = begin; r < end; r++) {
      const float *p = a.const_data_ptr<float>() + r * columns, *q = b.const_data_ptr<float>() + r * columns;
      float *t = total.data_ptr<float>() + r * columns, *out = y.data_ptr<float>() + r * columns;
      const float *scales = w.const_data_ptr<float>();
      for (int64_t c = 0; c < columns; c++) {
        t[c] = p[c] + q[c];
        squares[c] = static_cast<double>(t[c]) * t[c];
      }
      const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
      const float scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(columns) + epsilon));
      for (int64_t c = 0; c < columns; c++) out[c] = t[c] * scale * scales[c];
    }
  });
  return {y, total};
}

TORCH_LIBRARY(residual_kernels, m) {
  m.def("rms_norm(Tensor x, Tensor residual, Tensor weight, float epsilon) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(residual_kernels, CPU, m) {
  m.impl("rms_norm", &residual_rms_norm);
}
"""

load_inline(
    name="residual_kernels",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native"],
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        return torch.ops.residual_kernels.rms_norm(x, residual, self.weight, 1e-5)
