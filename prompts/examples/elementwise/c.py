import ctypes
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <math.h>
#include <string.h>

/* Without calls and branches, so that the compiler makes vector instructions of the loop; relative error 2e-7. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 4.1666668e-2f + r * (8.333334e-3f + r * 1.3888889e-3f);
    p = 1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f + r * p)));
    int bits = ((int)n + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

void gated_silu(const float *x, const float *gate, const float *scale, float *y, long rows, long columns) {
    for (long row = 0; row < rows; row++) {
        const float *a = x + row * columns, *g = gate + row * columns;
        float *to = y + row * columns;
        for (long c = 0; c < columns; c++) to[c] = a[c] / (1.0f + exponential(-a[c])) * g[c] * scale[c];
    }
}
"""


def build(source, flags):
    folder = tempfile.mkdtemp()  # under TMPDIR
    with open(f"{folder}/kernel.c", "w") as file:
        file.write(source)
    command = ["cc", *flags, "-shared", "-fPIC", f"{folder}/kernel.c", "-o", f"{folder}/kernel.so", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


def pointer(tensor):
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


library = build(SOURCE, ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, gate):
        y = torch.empty_like(x)
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        tensors = (x, gate, self.scale, y)
        library.gated_silu(*map(pointer, tensors), ctypes.c_long(rows), ctypes.c_long(columns))
        return y
