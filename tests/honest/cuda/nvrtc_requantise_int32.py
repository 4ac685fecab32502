"""NVRTC: fixed-point arithmetic in 64 bits, exact to the last bit, four codes in one store."""

import torch

PROBLEM = "core/level4/requantise_int32"

SOURCE = r"""
__device__ __forceinline__ signed char code(int x, int bias, int multiplier) {
    int sum = (int)((unsigned)x + (unsigned)bias); /* wraps around, as PyTorch's does */
    long long value = (((long long)sum * multiplier + (1LL << 30)) >> 31) + 3;
    return (signed char)(value < -128 ? -128 : value > 127 ? 127 : value);
}

extern "C" __global__ void __launch_bounds__(256)
requantise(const int4 *x, const int4 *bias, const int4 *multiplier, char4 *y, int fours, int columns) {
    int i = blockIdx.x * 256 + threadIdx.x, c = i % columns;
    if (i >= fours) return;
    int4 v = x[i], b = bias[c], m = multiplier[c];
    y[i] = make_char4(code(v.x, b.x, m.x), code(v.y, b.y, m.y), code(v.z, b.z, m.z), code(v.w, b.w, m.w));
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("multiplier", torch.randint(2**17, 2**19, (columns,), dtype=torch.int32))
        self.register_buffer("bias", torch.randint(-40000, 40000, (columns,), dtype=torch.int32))
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "requantise")
        y = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        fours = x.numel() // 4  # columns are a multiple of four
        arguments = [x.contiguous(), self.bias, self.multiplier, y, fours, x.shape[1] // 4]
        self.kernel((-(-fours // 256), 1, 1), (256, 1, 1), arguments)
        return y
