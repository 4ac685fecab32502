"""NVRTC between two library convolutions: group statistics in two passes, ReLU, and the residual, all in place."""

import torch

PROBLEM = "core/level3/conv_residual_block"

SOURCE = r"""
__device__ float over_block(float value, float *shared) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[threadIdx.x % 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    return value;
}

/* One block of 1024 threads for each group of each image: its channels lie one after the other. */
extern "C" __global__ void __launch_bounds__(1024)
group_norm_relu(float *y, const float *weight, const float *bias, int each, int groups, int pixels) {
    __shared__ float shared[32];
    int size = each * pixels, channel0 = blockIdx.x % groups * each;
    float *a = y + (long long)blockIdx.x * size;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < size; i += 1024) sum += a[i];
    float mean = over_block(sum, shared) / size;
    for (int i = threadIdx.x; i < size; i += 1024) squares += (a[i] - mean) * (a[i] - mean);
    float scale = rsqrtf(over_block(squares, shared) / size + 1e-5f);
    for (int i = threadIdx.x; i < size; i += 1024) {
        int channel = channel0 + i / pixels;
        a[i] = fmaxf((a[i] - mean) * scale * weight[channel] + bias[channel], 0.0f);
    }
}

extern "C" __global__ void bias_add_relu(float *y, const float *bias, const float *x, int channels, int pixels) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    long long i = ((long long)blockIdx.z * channels + blockIdx.y) * pixels + pixel;
    if (pixel < pixels) y[i] = fmaxf(x[i] + (y[i] + bias[blockIdx.y]), 0.0f);
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = torch.nn.GroupNorm(groups, channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)
        self.kernels = None

    def forward(self, x):
        if self.kernels is None:
            self.kernels = [torch.cuda._compile_kernel(SOURCE, name) for name in ("group_norm_relu", "bias_add_relu")]
        normalise, finish = self.kernels
        images, channels, height, width = x.shape
        groups, pixels = self.norm.num_groups, height * width
        inner = self.conv1(x).contiguous()
        arguments = [inner, self.norm.weight, self.norm.bias, channels // groups, groups, pixels]
        normalise((images * groups, 1, 1), (1024, 1, 1), arguments)
        y = torch.nn.functional.conv2d(inner, self.conv2.weight, padding=1).contiguous()
        grid = (-(-pixels // 256), channels, images)
        finish(grid, (256, 1, 1), [y, self.conv2.bias, x.contiguous(), channels, pixels])
        return y
