"""Judges two answers to one problem on the CPU, a cheat and a kernel in C, and says what became of each (seconds)."""

import kbenv

CHEAT = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x  # right wherever x is positive
"""

KERNEL = r'''
import ctypes
import subprocess
import torch

SOURCE = """
void relu(const float *x, float *y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
"""
with open("relu.c", "w") as file:
    file.write(SOURCE)
subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "relu.c", "-o", "relu.so"], check=True)
library = ctypes.CDLL("./relu.so")
library.relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        library.relu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''


def main() -> None:
    with kbenv.Evaluator(device="cpu") as evaluator:
        for name, source in (("cheat", CHEAT), ("kernel", KERNEL)):
            verdict = evaluator.evaluate("core/level1/relu", source)
            print(f"{name}: {verdict.status}")
            if verdict.speedup is not None:
                low, high = verdict.speedup.low, verdict.speedup.high
                print(f"  {verdict.speedup.value:.2f} times the reference's speed (95%: {low:.2f} to {high:.2f})")
            else:
                print(f"  {verdict.message}")


if __name__ == "__main__":
    main()
