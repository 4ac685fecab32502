"""One thread an element."""

from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/swiglu.py"

kernels = Kernels(r"""
extern "C" __global__ void swiglu(const float *x, float *y, int rows, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) {
        int row = i / columns, column = i % columns;
        float a = x[row * 2 * columns + column];
        float b = x[row * 2 * columns + columns + column];
        y[i] = a / (1.0f + expf(-a)) * b;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, columns)
        kernels.launch("swiglu", ((rows * columns + 127) // 128,), (128,), x, y, rows, columns)
        return y
