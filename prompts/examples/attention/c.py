import ctypes
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, KEYS = 16, WIDEST = 256 };
typedef float vec __attribute__((vector_size(64), aligned(4)));

/* Without calls and branches, so that the compiler makes vector instructions of a loop over it; relative error 2e-7. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 4.1666668e-2f + r * (8.333334e-3f + r * 1.3888889e-3f);
    p = 1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f + r * p)));
    int bits = ((int)n + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

/* A few queries, sixteen keys at a time. Scores are never stored: the sums are corrected when a larger one comes. */
static void attend(const float *q, const float *keys, const float *v, float *y, long tokens, long width, long rows) {
    float query[ROWS][WIDEST], sum[ROWS][WIDEST] = {{0}}, top[ROWS], weights[ROWS] = {0};
    for (long r = 0; r < ROWS; r++) {
        top[r] = -INFINITY;
        for (long c = 0; c < width; c++) query[r][c] = q[(r < rows ? r : 0) * width + c] / sqrtf((float)width);
    }
    for (long first = 0; first < tokens; first += KEYS) {
        long count = tokens - first < KEYS ? tokens - first : KEYS;
        vec scores[ROWS] = {{0}};
        for (long c = 0; c < width; c++) {
            vec key = *(const vec *)(keys + first * width + c * KEYS);
            for (long r = 0; r < ROWS; r++) scores[r] += query[r][c] * key;
        }
        float p[ROWS][KEYS];
        for (long r = 0; r < ROWS; r++) {
            float highest = top[r];
            for (long s = 0; s < count; s++) highest = scores[r][s] > highest ? scores[r][s] : highest;
            if (highest > top[r]) {
                float correction = top[r] == -INFINITY ? 0.0f : exponential(top[r] - highest);
                weights[r] *= correction;
                for (long c = 0; c < width; c++) sum[r][c] *= correction;
                top[r] = highest;
            }
            for (long s = 0; s < KEYS; s++) p[r][s] = s < count ? exponential(scores[r][s] - top[r]) : 0.0f;
            for (long s = 0; s < KEYS; s++) weights[r] += p[r][s];
        }
        for (long c = 0; c < width; c += 16) {
            vec part[ROWS] = {{0}};
            for (long s = 0; s < count; s++) {
                vec value = *(const vec *)(v + (first + s) * width + c);
                for (long r = 0; r < ROWS; r++) part[r] += p[r][s] * value;
            }
            for (long r = 0; r < ROWS; r++) *(vec *)(sum[r] + c) += part[r];
        }
    }
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < width; c++) y[r * width + c] = sum[r][c] / weights[r];
}

/* Sixteen keys side by side, element by element, so that scores of sixteen keys are one vector operation. */
static void pack(const float *k, float *keys, long tokens, long width) {
    for (long first = 0; first < tokens; first += KEYS)
        for (long c = 0; c < width; c++)
            for (long s = 0; s < KEYS; s++)
                keys[first * width + c * KEYS + s] = first + s < tokens ? k[(first + s) * width + c] : 0.0f;
}

int online_attention(const float *q, const float *k, const float *v, float *y, long heads, long tokens, long width) {
    if (width > WIDEST || width % 16) return 1;
    float *keys = malloc(sizeof(float) * (tokens + KEYS) * width);
    if (!keys) return 2;
    for (long h = 0; h < heads; h++) {
        long at = h * tokens * width;
        pack(k + at, keys, tokens, width);
        for (long row = 0; row < tokens; row += ROWS)
            attend(q + at + row * width, keys, v + at, y + at + row * width, tokens, width,
                   tokens - row < ROWS ? tokens - row : ROWS);
    }
    free(keys);
    return 0;
}
"""
FLAGS = ["-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]


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


library = build(SOURCE, FLAGS)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        sizes = (q.shape[0] * q.shape[1], q.shape[2], q.shape[3])
        if library.online_attention(*map(pointer, (q, k, v, y)), *map(ctypes.c_long, sizes)):
            raise ValueError(f"this kernel was not written for heads of {q.shape[3]}, or there is no memory")
        return y
