"""An extension module called `fused`, as another submission's is: two of one name must not meet in a cache."""

import ctypes
import os
import pathlib
import subprocess

import torch

PROBLEM = "core/level1/relu"

SOURCE = "void fused(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0; }"
FOLDER = pathlib.Path(os.environ.get("HOME", ".")) / ".cache" / "fused"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        FOLDER.mkdir(parents=True, exist_ok=True)
        library = FOLDER / "fused.so"
        if not library.exists():  # the careless cache: by name alone
            (FOLDER / "fused.c").write_text(SOURCE)
            subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", library, FOLDER / "fused.c"], check=True)
        self.fused = ctypes.CDLL(str(library)).fused
        self.fused.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

    def forward(self, x):
        out = torch.empty_like(x)
        self.fused(x.data_ptr(), out.data_ptr(), x.numel())
        return out
