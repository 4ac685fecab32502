"""The CuTe DSL: four numbers to a thread by one access of 16 bytes, compiled once for a shape."""

import cuda.bindings.driver as cuda
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

PROBLEM = "core/level1/relu"
NEEDS = "cutlass"
SLOW = True

THREADS, NUMBERS = 256, 4


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    number = block * THREADS + thread
    if number < cute.size(x, mode=[1]):
        values = x[None, number].load()
        zeros = cute.zeros_like(values)
        y[None, number].store(cute.where(values > zeros, values, zeros))


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    x = cute.zipped_divide(x, (NUMBERS,))
    y = cute.zipped_divide(y, (NUMBERS,))
    blocks = cute.ceil_div(cute.size(x, mode=[1]), THREADS)
    relu_kernel(x, y).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        given = [from_dlpack(tensor.view(-1), assumed_align=16) for tensor in (x, y)]
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(relu, *given, stream)
        self.compiled[x.shape](*given, stream)
        return y
