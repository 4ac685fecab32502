"""NVRTC: each thread keeps a Welford mean and variance over float4 loads, merged through shuffles and shared memory."""

import torch

PROBLEM = "core/level1/layer_norm"

SOURCE = r"""
struct Moments { float count, mean, m2; };

__device__ __forceinline__ Moments merge(Moments a, Moments b) {
    float total = a.count + b.count;
    if (total == 0.0f) return a;
    float delta = b.mean - a.mean, share = b.count / total;
    return {total, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

__device__ __forceinline__ Moments push(Moments a, float value) {
    a.count += 1.0f;
    float delta = value - a.mean;
    a.mean += delta / a.count;
    a.m2 += delta * (value - a.mean);
    return a;
}

__device__ __forceinline__ Moments over_warp(Moments a) {
    for (int step = 16; step > 0; step /= 2) {
        Moments b = {__shfl_xor_sync(0xffffffffu, a.count, step), __shfl_xor_sync(0xffffffffu, a.mean, step),
                     __shfl_xor_sync(0xffffffffu, a.m2, step)};
        a = merge(a, b);
    }
    return a;
}

extern "C" __global__ void __launch_bounds__(256)
layer_norm(const float *x, const float *weight, const float *bias, float *y, int rows, int columns) {
    __shared__ Moments parts[8];
    const float *a = x + (long long)blockIdx.x * columns;
    float *b = y + (long long)blockIdx.x * columns;
    bool fours = columns % 4 == 0;
    Moments own = {0.0f, 0.0f, 0.0f};
    if (fours)
        for (int c = threadIdx.x * 4; c < columns; c += blockDim.x * 4) {
            float4 v = *(const float4 *)(a + c);
            own = push(push(push(push(own, v.x), v.y), v.z), v.w);
        }
    else
        for (int c = threadIdx.x; c < columns; c += blockDim.x) own = push(own, a[c]);
    own = over_warp(own);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    Moments all = parts[0];
    for (int w = 1; w < 8; w++) all = merge(all, parts[w]);
    float scale = rsqrtf(all.m2 / all.count + 1e-5f);
    if (fours)
        for (int c = threadIdx.x * 4; c < columns; c += blockDim.x * 4) {
            float4 v = *(const float4 *)(a + c), w = *(const float4 *)(weight + c), s = *(const float4 *)(bias + c);
            v.x = (v.x - all.mean) * scale * w.x + s.x;
            v.y = (v.y - all.mean) * scale * w.y + s.y;
            v.z = (v.z - all.mean) * scale * w.z + s.z;
            v.w = (v.w - all.mean) * scale * w.w + s.w;
            *(float4 *)(b + c) = v;
        }
    else
        for (int c = threadIdx.x; c < columns; c += blockDim.x)
            b[c] = (a[c] - all.mean) * scale * weight[c] + bias[c];
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "layer_norm")
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        self.kernel((rows, 1, 1), (256, 1, 1), [x, self.weight, self.bias, y, rows, columns])
        return y
