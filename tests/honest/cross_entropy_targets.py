"""C over integer targets, one of which means "ignore"; a vector and a number with no dimension come back."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "honest/problems/cross_entropy_rows.py"

SOURCE = r"""
#include <math.h>
#include <stdint.h>

void cross_entropy(const float *logits, const int64_t *targets, float *losses, float *mean, int64_t rows,
                   int64_t classes) {
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++, logits += classes) {
        losses[r] = 0.0f;
        if (targets[r] == -100) continue;
        float top = logits[0], total = 0.0f;
        for (int64_t c = 1; c < classes; c++) top = logits[c] > top ? logits[c] : top;
        for (int64_t c = 0; c < classes; c++) total += expf(logits[c] - top);
        losses[r] = logf(total) - (logits[targets[r]] - top);
        sum += losses[r];
        count++;
    }
    *mean = (float)(sum / (double)count);
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "loss.c").write_text(SOURCE)
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", folder / "loss.so", folder / "loss.c", "-lm"]
    subprocess.run(command, check=True)
    kernel = ctypes.CDLL(str(folder / "loss.so")).cross_entropy
    kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        losses, mean = logits.new_empty(logits.shape[0]), logits.new_empty(())
        self.kernel(logits.data_ptr(), targets.data_ptr(), losses.data_ptr(), mean.data_ptr(), *logits.shape)
        return losses, mean
