"""C++ built inside the first forward, which therefore takes half a minute; templates over the width of a head."""

import torch
from torch.utils.cpp_extension import load_inline

PROBLEM = "core/level3/attention_block"
SLOW = True

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <array>
#include <cmath>
#include <vector>

namespace {

template <int64_t width>
std::array<float, width> rms_norm(const float *a, const float *weight, float factor) {
  float sum = 0.0f;
  for (int64_t c = 0; c < width; c++) sum += a[c] * a[c];
  const float scale = factor / std::sqrt(sum / width + 1e-6f);
  std::array<float, width> result;
  for (int64_t c = 0; c < width; c++) result[c] = a[c] * scale * weight[c];
  return result;
}

// qkv: batch, tokens, 3, heads, width; scores are kept for one query at a time
template <int64_t width>
void attend(const torch::Tensor &qkv, const float *query_weight, const float *key_weight, torch::Tensor &y) {
  const int64_t tokens = qkv.size(1), heads = qkv.size(3), line = 3 * heads * width;
  at::parallel_for(0, qkv.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<std::array<float, width>> keys(tokens);
    std::vector<float> scores(tokens);
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / heads, h = i % heads;
      const float *first = qkv.const_data_ptr<float>() + b * tokens * line + h * width;
      for (int64_t t = 0; t < tokens; t++)
        keys[t] = rms_norm<width>(first + t * line + heads * width, key_weight, 1.0f);
      for (int64_t t = 0; t < tokens; t++) {
        const auto query = rms_norm<width>(first + t * line, query_weight, 1.0f / std::sqrt(float(width)));
        float top = -INFINITY, total = 0.0f;
        for (int64_t s = 0; s <= t; s++) {
          scores[s] = 0.0f;
          for (int64_t c = 0; c < width; c++) scores[s] += query[c] * keys[s][c];
          top = std::max(top, scores[s]);
        }
        float *to = y.data_ptr<float>() + ((b * tokens + t) * heads + h) * width;
        std::fill(to, to + width, 0.0f);
        for (int64_t s = 0; s <= t; s++) {
          const float weight = std::exp(scores[s] - top);
          const float *value = first + s * line + 2 * heads * width;
          total += weight;
          for (int64_t c = 0; c < width; c++) to[c] += weight * value[c];
        }
        for (int64_t c = 0; c < width; c++) to[c] /= total;
      }
    }
  });
}

}  // namespace

torch::Tensor attention(torch::Tensor qkv, torch::Tensor query_weight, torch::Tensor key_weight) {
  qkv = qkv.contiguous();
  const int64_t width = qkv.size(4);
  auto y = torch::empty({qkv.size(0), qkv.size(1), qkv.size(3) * width}, qkv.options());
  const float *q = query_weight.const_data_ptr<float>(), *k = key_weight.const_data_ptr<float>();
  if (width == 32) attend<32>(qkv, q, k, y);
  else if (width == 64) attend<64>(qkv, q, k, y);
  else if (width == 128) attend<128>(qkv, q, k, y);
  else TORCH_CHECK(false, "no kernel for heads of ", width);
  return y;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.query_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))
        self.key_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))
        self.module = None

    def forward(self, x):
        if self.module is None:
            flags = ["-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]
            self.module = load_inline("attention", SOURCE, functions=["attention"], extra_cflags=flags)
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        y = self.module.attention(qkv, self.query_weight, self.key_weight)
        return torch.addmm(x.reshape(-1, width) + self.out.bias, y.view(-1, width), self.out.weight.t()).view(x.shape)
