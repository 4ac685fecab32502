import ctypes
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <math.h>

enum { KEYS = 64, WIDEST = 256 };

/* Scores of one query with a block of keys at a time; the sum is corrected when a block brings a larger score. */
static void attend(const float *q, const float *k, const float *v, float *y, long tokens, long width) {
    float scale = 1.0f / sqrtf((float)width);
    for (long row = 0; row < tokens; row++) {
        const float *query = q + row * width;
        float sum[WIDEST] = {0}, top = -INFINITY, weights = 0.0f;
        for (long first = 0; first < tokens; first += KEYS) {
            long count = tokens - first < KEYS ? tokens - first : KEYS;
            float scores[KEYS], highest = top;
            for (long s = 0; s < count; s++) {
                float score = 0.0f;
                for (long c = 0; c < width; c++) score += query[c] * k[(first + s) * width + c];
                scores[s] = score * scale;
                highest = scores[s] > highest ? scores[s] : highest;
            }
            float correction = expf(top - highest);
            top = highest;
            weights *= correction;
            for (long c = 0; c < width; c++) sum[c] *= correction;
            for (long s = 0; s < count; s++) {
                float weight = expf(scores[s] - top);
                weights += weight;
                for (long c = 0; c < width; c++) sum[c] += weight * v[(first + s) * width + c];
            }
        }
        for (long c = 0; c < width; c++) y[row * width + c] = sum[c] / weights;
    }
}

int online_attention(const float *q, const float *k, const float *v, float *y, long heads, long tokens, long width) {
    if (width > WIDEST) return 1;
    for (long h = 0; h < heads; h++) {
        long at = h * tokens * width;
        attend(q + at, k + at, v + at, y + at, tokens, width);
    }
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
            raise ValueError(f"heads of {q.shape[3]} are wider than this kernel was written for")
        return y
