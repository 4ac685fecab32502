import ctypes
import pathlib
import re
import subprocess
import tempfile

import torch

# Where there is no GPU a block's threads run as coroutines, each from barrier to barrier, the last
# thread first in every other block, else the first.
EMULATION = r"""
#include <math.h>
#include <stdlib.h>
#include <ucontext.h>
struct dim3 { unsigned x, y, z; };
static dim3 gridDim, blockDim, blockIdx, threadIdx;
static ucontext_t scheduler, *current;
static float lanes[1024];
static int thread_number;
#define __global__
#define __device__ static
#define __shared__ static
#define __syncthreads() swapcontext(current, &scheduler)
static inline float __shfl_down_sync(unsigned, float value, unsigned offset) {
    int me = thread_number;
    lanes[me] = value;
    __syncthreads();
    float other = (me & 31) + offset < 32 ? lanes[me + offset] : value;
    __syncthreads();
    return other;
}
static inline float atomicAdd(float *at, float value) { float old = *at; *at += value; return old; }
static inline float rsqrtf(float t) { return 1.0f / sqrtf(t); }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static void run_block(void (*thread)(void), char *stacks, ucontext_t *threads, ucontext_t *ends, char *alive) {
    int count = blockDim.x * blockDim.y, left = count;
    for (int i = 0; i < count; i++) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = stacks + i * 32768;
        threads[i].uc_stack.ss_size = 32768;
        threads[i].uc_link = &ends[i];
        makecontext(&threads[i], thread, 0);
        alive[i] = 1;
    }
    while (left > 0)
        for (int n = 0; n < count; n++) {
            int i = blockIdx.x % 2 ? n : count - 1 - n;
            if (!alive[i]) continue;
            volatile int over = 0;
            getcontext(&ends[i]);
            if (over) {
                alive[i] = 0;
                left--;
                continue;
            }
            over = 1;
            threadIdx.x = i % blockDim.x;
            threadIdx.y = i / blockDim.x;
            thread_number = i;
            current = &threads[i];
            swapcontext(&scheduler, current);
        }
}
static void run(dim3 grid, dim3 block, void (*thread)(void)) {
    int count = block.x * block.y;
    char *stacks = (char *)malloc(count * 32768), *alive = (char *)malloc(count);
    ucontext_t *threads = (ucontext_t *)malloc(2 * count * sizeof(ucontext_t));
    gridDim = grid;
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                run_block(thread, stacks, threads, threads + count, alive);
    free(stacks);
    free(alive);
    free(threads);
}
"""


class Kernels:
    """CUDA C, compiled by NVRTC where there is a GPU and by the C++ compiler elsewhere."""

    def __init__(self, source):
        self.source = source
        self.compiled = {}
        if not torch.cuda.is_available():
            library = self.emulated()
            for name in re.findall(r"__global__ void (\w+)", source):
                self.compiled[name] = getattr(library, f"launch_{name}")

    def launch(self, name, grid, block, *arguments):
        """Tensors go as pointers, numbers as int."""
        arguments = [item.contiguous() if isinstance(item, torch.Tensor) else item for item in arguments]
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        if torch.cuda.is_available():
            if name not in self.compiled:
                text = "#define INFINITY __int_as_float(0x7f800000)\n" + self.source
                self.compiled[name] = torch.cuda._compile_kernel(text, name)
            self.compiled[name](grid, block, arguments)
            return
        values = [
            ctypes.c_void_p(item.data_ptr()) if isinstance(item, torch.Tensor) else ctypes.c_int(item)
            for item in arguments
        ]
        self.compiled[name](*map(ctypes.c_int, (*grid, *block)), *values)

    def emulated(self):
        text = EMULATION + self.source
        for name, parameters in re.findall(r"__global__ void (\w+)\(([^)]*)\)", self.source):
            parts = [part.strip() for part in parameters.split(",")]
            names = [re.search(r"\w+$", part).group() for part in parts]
            kept = [f"static {part.removesuffix(n)}kept_{n};" for part, n in zip(parts, names, strict=True)]
            text += "\n".join(
                [
                    f"namespace of_{name} {{",
                    *kept,
                    f"static void thread() {{ {name}({', '.join(f'kept_{n}' for n in names)}); }}",
                    "}",
                    f'extern "C" void launch_{name}(',
                    "    unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,",
                    f"    {parameters}) {{",
                    *(f"    of_{name}::kept_{n} = {n};" for n in names),
                    f"    run(dim3{{gx, gy, gz}}, dim3{{bx, by, bz}}, of_{name}::thread);",
                    "}\n",
                ]
            )
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "kernel.cpp").write_text(text)
        command = ["c++", "-O1", "-w", "-shared", "-fPIC", "-o", "kernel.so", "kernel.cpp"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return ctypes.CDLL(str(folder / "kernel.so"))
