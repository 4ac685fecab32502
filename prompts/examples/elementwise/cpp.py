import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

// Without calls and branches, so that the compiler makes vector instructions of the loop; relative error 2e-7.
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    float n = std::rint(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 4.1666668e-2f + r * (8.333334e-3f + r * 1.3888889e-3f);
    p = 1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f + r * p)));
    int bits = ((int)n + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

torch::Tensor gated_silu(torch::Tensor x, torch::Tensor gate, torch::Tensor scale) {
    TORCH_CHECK(x.is_contiguous() && gate.is_contiguous(), "expected contiguous tensors");
    auto y = torch::empty_like(x);
    const int64_t columns = x.size(-1), rows = x.numel() / columns;
    const float *s = scale.data_ptr<float>();
    for (int64_t row = 0; row < rows; row++) {
        const float *a = x.data_ptr<float>() + row * columns, *g = gate.data_ptr<float>() + row * columns;
        float *to = y.data_ptr<float>() + row * columns;
        for (int64_t c = 0; c < columns; c++) to[c] = a[c] / (1.0f + exponential(-a[c])) * g[c] * s[c];
    }
    return y;
}
"""
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
extension = load_inline("gated_silu", CPP, functions=["gated_silu"], extra_cflags=FLAGS)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, gate):
        return extension.gated_silu(x, gate, self.scale)
