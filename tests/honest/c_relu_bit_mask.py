"""C: ReLU by masking bits, without a comparison; the library is cached in TMPDIR under a hash of its source."""

import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/relu"

SOURCE = r"""
#include <stdint.h>

/* The sign, spread over all bits, clears what is negative; a NaN stays as it is. */
void relu(const uint32_t *restrict x, uint32_t *restrict y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t keep = ~(uint32_t)((int32_t)x[i] >> 31) | -(uint32_t)((x[i] & 0x7fffffffu) > 0x7f800000u);
        y[i] = x[i] & keep;
    }
}
"""


def load():
    folder = os.path.join(os.environ.get("TMPDIR") or tempfile.gettempdir(), "kernel-cache")
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(folder, hashlib.sha256(SOURCE.encode()).hexdigest()[:16] + ".so")
    if not os.path.exists(library):
        descriptor, partial = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(descriptor)
        command = ["cc", "-x", "c", "-", "-O3", "-march=native", "-shared", "-fPIC", "-o", partial]
        subprocess.run(command, input=SOURCE, text=True, check=True)
        os.replace(partial, library)  # whole or not at all, whoever else is building it
    return ctypes.CDLL(library)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.library = load()

    def forward(self, x):
        y = torch.empty(x.shape)
        x = x.contiguous()
        arguments = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel())
        self.library.relu(*arguments)
        return y
