"""One thread a query, keys and values in shared tiles of eight."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/causal_attention.py"

kernels = Kernels(r"""
extern "C" __global__ void causal_attention(const float *q, const float *k, const float *v, float *y, int tokens) {
    __shared__ float keys[8][16], values[8][16];
    int t = threadIdx.x, head = blockIdx.y * tokens, query = blockIdx.x * 32 + t;
    float mine[16], out[16], largest = -INFINITY, sum = 0.0f;
    for (int d = 0; d < 16; d++) {
        mine[d] = query < tokens ? q[(head + query) * 16 + d] * 0.25f : 0.0f;
        out[d] = 0.0f;
    }
    for (int start = 0; start < tokens; start += 8) {
        for (int i = t; i < 128; i += 32) {
            int key = start + i / 16;
            keys[i / 16][i % 16] = key < tokens ? k[(head + key) * 16 + i % 16] : 0.0f;
            values[i / 16][i % 16] = key < tokens ? v[(head + key) * 16 + i % 16] : 0.0f;
        }
        __syncthreads();
        for (int j = 0; j < 8; j++) {
            float score = 0.0f;
            for (int d = 0; d < 16; d++) score += mine[d] * keys[j][d];
            if (start + j > query) continue;
            float next = fmaxf(largest, score);
            float shrink = expf(largest - next), weight = expf(score - next);
            largest = next;
            sum = sum * shrink + weight;
            for (int d = 0; d < 16; d++) out[d] = out[d] * shrink + weight * values[j][d];
        }
        __syncthreads();
    }
    if (query < tokens)
        for (int d = 0; d < 16; d++) y[(head + query) * 16 + d] = out[d] / sum;
}
""")


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        batch, heads, tokens, _ = q.shape
        kernels.launch("causal_attention", ((tokens + 31) // 32, batch * heads), (32,), q, k, v, y, tokens)
        return y
