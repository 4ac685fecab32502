"""NVRTC: the convolution as a product whose right operand is gathered on the fly; bias and ReLU in its epilogue."""

import torch

PROBLEM = "core/level2/conv_bias_relu"

SOURCE = r"""
enum { CHANNELS = 64, PIXELS = 128, DEPTH = 8 };

/* For each image: y (out by pixels) = weight (out by 9 * in) @ patches (9 * in by pixels). */
extern "C" __global__ void __launch_bounds__(256)
conv_bias_relu(const float *x, const float *weight, const float *bias, float *y, int in, int out, int height,
               int width) {
    __shared__ float ws[DEPTH][CHANNELS + 4], xs[DEPTH][PIXELS];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, pixels = height * width, inner = 9 * in;
    int pixel0 = blockIdx.x * PIXELS, channel0 = blockIdx.y * CHANNELS;
    const float *image = x + (long long)blockIdx.z * in * pixels;
    float sum[4][8] = {};
    for (int p = 0; p < inner; p += DEPTH) {
        for (int i = threadIdx.x; i < CHANNELS * DEPTH; i += 256) {
            int c = i / DEPTH, q = i % DEPTH;
            ws[q][c] = channel0 + c < out && p + q < inner ? weight[(long long)(channel0 + c) * inner + p + q] : 0.0f;
        }
        for (int i = threadIdx.x; i < PIXELS * DEPTH; i += 256) {
            int q = i / PIXELS, j = i % PIXELS, pixel = pixel0 + j, t = p + q;
            int h = pixel / width + t % 9 / 3 - 1, w = pixel % width + t % 3 - 1;
            bool inside = pixel < pixels && t < inner && h >= 0 && h < height && w >= 0 && w < width;
            xs[q][j] = inside ? image[(long long)(t / 9) * pixels + h * width + w] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < DEPTH; q++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += ws[q][ty * 4 + i] * xs[q][tx + 16 * j];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int channel = channel0 + ty * 4 + i, pixel = pixel0 + tx + 16 * j;
            if (channel < out && pixel < pixels)
                y[((long long)blockIdx.z * out + channel) * pixels + pixel] = fmaxf(sum[i][j] + bias[channel], 0.0f);
        }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "conv_bias_relu")
        images, channels_in, height, width = x.shape
        channels_out = self.bias.numel()
        x, y = x.contiguous(), x.new_empty(images, channels_out, height, width)
        grid = (-(-height * width // 128), -(-channels_out // 64), images)
        arguments = [x, self.conv.weight, self.bias, y, channels_in, channels_out, height, width]
        self.kernel(grid, (256, 1, 1), arguments)
        return y
