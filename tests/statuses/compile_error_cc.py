"""COMPILE_ERROR: C that does not compile, by the compiler's command line."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/relu"
EXPECT = ["COMPILE_ERROR"]
SAYS = "undeclared_name"

SOURCE = "void relu(const float *x, float *y, long n) { y[0] = undeclared_name; }"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "relu.c").write_text(SOURCE)
        command = ["cc", "-shared", "-fPIC", "-o", str(folder / "relu.so"), str(folder / "relu.c")]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self.library = ctypes.CDLL(str(folder / "relu.so"))

    def forward(self, x):
        return torch.relu(x)
