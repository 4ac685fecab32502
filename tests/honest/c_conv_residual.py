"""C: the whole residual block in one call, channels last inside; its workspace is allocated in C and kept."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level3/conv_residual_block"

SOURCE = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { long images, channels, groups, height, width; } shape;

static float *workspace;
static size_t workspace_size;

static float *reserve(size_t size) {
    if (size > workspace_size) {
        free(workspace);
        workspace = malloc(size * sizeof(float));
        workspace_size = workspace ? size : 0;
    }
    return workspace;
}

/* y: [height][width][channels]; x: [height + 2][width + 2][channels]; weight: [3][3][in][out] */
static void convolve(const float *x, const float *weight, const float *bias, float *y, shape s) {
    long channels = s.channels;
    for (long h = 0; h < s.height; h++)
        for (long w = 0; w < s.width; w++) {
            float *sum = y + (h * s.width + w) * channels;
            for (long c = 0; c < channels; c++) sum[c] = bias ? bias[c] : 0.0f;
            for (long kh = 0; kh < 3; kh++) {
                const float *a = x + ((h + kh) * (s.width + 2) + w) * channels;
                const float *b = weight + kh * 3 * channels * channels;
                for (long t = 0; t < 3 * channels; t++)
                    for (long c = 0; c < channels; c++) sum[c] += a[t] * b[t * channels + c];
            }
        }
}

/* padded = relu(norm(y)): a mean first and then squares of differences, in double, group by group */
static void normalise(const float *y, const float *weight, const float *bias, float *padded, shape s) {
    long channels = s.channels, each = channels / s.groups, pixels = s.height * s.width;
    for (long g = 0; g < s.groups; g++) {
        double sum = 0.0, squares = 0.0;
        for (long p = 0; p < pixels; p++)
            for (long c = g * each; c < (g + 1) * each; c++) sum += y[p * channels + c];
        double mean = sum / (double)(pixels * each);
        for (long p = 0; p < pixels; p++)
            for (long c = g * each; c < (g + 1) * each; c++) {
                double difference = y[p * channels + c] - mean;
                squares += difference * difference;
            }
        float scale = (float)(1.0 / sqrt(squares / (double)(pixels * each) + 1e-5)), shift = (float)mean;
        for (long h = 0; h < s.height; h++)
            for (long w = 0; w < s.width; w++)
                for (long c = g * each; c < (g + 1) * each; c++) {
                    float t = (y[(h * s.width + w) * channels + c] - shift) * scale * weight[c] + bias[c];
                    padded[((h + 1) * (s.width + 2) + w + 1) * channels + c] = t > 0.0f ? t : 0.0f;
                }
    }
}

int block(const float *x, const float *weight1, const float *norm_weight, const float *norm_bias, const float *weight2,
          const float *bias2, float *y, const shape *given) {
    shape s = *given;
    long pixels = s.height * s.width, size = s.channels * pixels;
    long padded_size = (s.height + 2) * (s.width + 2) * s.channels;
    float *padded = reserve((size_t)(padded_size + size));
    if (!padded) return 1;
    float *inner = padded + padded_size;
    for (long i = 0; i < s.images; i++, x += size, y += size) {
        memset(padded, 0, sizeof(float) * padded_size);
        for (long c = 0; c < s.channels; c++)
            for (long h = 0; h < s.height; h++)
                for (long w = 0; w < s.width; w++)
                    padded[((h + 1) * (s.width + 2) + w + 1) * s.channels + c] = x[(c * s.height + h) * s.width + w];
        convolve(padded, weight1, NULL, inner, s);
        normalise(inner, norm_weight, norm_bias, padded, s); /* its borders are still zero */
        convolve(padded, weight2, bias2, inner, s);
        for (long c = 0; c < s.channels; c++)
            for (long p = 0; p < pixels; p++) {
                float t = x[c * pixels + p] + inner[p * s.channels + c];
                y[c * pixels + p] = t > 0.0f ? t : 0.0f;
            }
    }
    return 0;
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "block.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "block.so", folder / "block.c", "-lm"], check=True)
    return ctypes.CDLL(str(folder / "block.so")).block


class ModelNew(torch.nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = torch.nn.GroupNorm(groups, channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)
        self.block = build()
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = [conv.weight.permute(2, 3, 1, 0).contiguous() for conv in (self.conv1, self.conv2)]
        x = x.contiguous()
        y = torch.empty_like(x)
        weights = (self.packed[0], self.norm.weight, self.norm.bias, self.packed[1], self.conv2.bias)
        images, channels, height, width = x.shape
        shape = (ctypes.c_long * 5)(images, channels, self.norm.num_groups, height, width)
        if self.block(*(ctypes.c_void_p(t.data_ptr()) for t in (x, *weights, y)), shape) != 0:
            raise MemoryError("no memory for the workspace")
        return y
