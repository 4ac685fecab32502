"""An extension module called `fused`, as another submission's is: the other half of that pair."""

import ctypes
import os
import pathlib
import subprocess

import torch

PROBLEM = "core/level1/softmax"

SOURCE = r"""
#include <math.h>
void fused(const float *x, float *y, long rows, long columns) {
    for (long r = 0; r < rows; r++, x += columns, y += columns) {
        float sum = 0, top = x[0];
        for (long c = 1; c < columns; c++) top = x[c] > top ? x[c] : top;
        for (long c = 0; c < columns; c++) sum += y[c] = expf(x[c] - top);
        for (long c = 0; c < columns; c++) y[c] /= sum;
    }
}
"""
FOLDER = pathlib.Path(os.environ.get("HOME", ".")) / ".cache" / "fused"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        FOLDER.mkdir(parents=True, exist_ok=True)
        library = FOLDER / "fused.so"
        if not library.exists():  # the careless cache: by name alone
            (FOLDER / "fused.c").write_text(SOURCE)
            subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", library, FOLDER / "fused.c", "-lm"], check=True)
        self.fused = ctypes.CDLL(str(library)).fused
        self.fused.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]

    def forward(self, x):
        out = torch.empty_like(x)
        self.fused(x.data_ptr(), out.data_ptr(), *x.shape)
        return out
