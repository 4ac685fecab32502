"""C with POSIX threads that are pinned to a core, started and joined in every call."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/relu"

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

enum { THREADS = 2 };
typedef struct { const float *x; float *y; long n; int core; } part;

static void *work(void *argument) {
    part *p = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(p->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* where that is not allowed, any core will do */
    for (long i = 0; i < p->n; i++) p->y[i] = p->x[i] > 0.0f ? p->x[i] : 0.0f;
    return NULL;
}

int relu(const float *x, float *y, long n) {
    pthread_t threads[THREADS];
    part parts[THREADS];
    int started = 0;
    for (int t = 0; t < THREADS; t++) {
        long first = n * t / THREADS, last = n * (t + 1) / THREADS;
        parts[t] = (part){x + first, y + first, last - first, t};
        if (pthread_create(&threads[t], NULL, work, &parts[t]) != 0) break;
        started++;
    }
    for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
    return started != THREADS;
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "relu.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-pthread", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "relu.so", folder / "relu.c"], check=True)
    kernel = ctypes.CDLL(str(folder / "relu.so")).relu
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if self.kernel(x.data_ptr(), y.data_ptr(), x.numel()) != 0:
            raise RuntimeError("a thread could not be started")
        return y
