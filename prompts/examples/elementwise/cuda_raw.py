import torch
from torch import nn

CUDA = r"""
__device__ float gated(float x, float gate, float scale) { return x / (1.0f + expf(-x)) * gate * scale; }

// One pass over memory: a thread takes four neighbouring columns, sixteen bytes a load, then goes on by the whole grid.
extern "C" __global__ void gated_silu(
    const float4* x, const float4* gate, const float4* scale, float4* y, int n, int columns) {
    long long step = gridDim.x * (long long)blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {
        float4 a = x[i], g = gate[i], s = scale[i % columns];
        y[i] = make_float4(gated(a.x, g.x, s.x), gated(a.y, g.y, s.y), gated(a.z, g.z, s.z), gated(a.w, g.w, s.w));
    }
}
"""
gated_silu = torch.cuda._compile_kernel(CUDA, "gated_silu")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, gate):
        x, gate, columns = x.contiguous(), gate.contiguous(), x.shape[-1]
        assert columns % 4 == 0, "expected rows of 4n floats"
        y = torch.empty_like(x)
        n = x.numel() // 4  # Python integers arrive as int
        grid = (min(-(-n // 256), 65535), 1, 1)
        gated_silu(grid, (256, 1, 1), [x, gate, self.scale, y, n, columns // 4])
        return y
