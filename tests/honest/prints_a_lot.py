"""Prints some 30 kB a call to both streams, with control characters and no newline at the end."""

import sys

import torch

PROBLEM = "core/level1/relu"

print("building", "." * 200_000)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        print(f"forward of {tuple(x.shape)} " + "=" * 15_000)
        sys.stderr.write("\x1b[31mwarning:\x1b[0m \x00\x07 nothing is wrong " + "-" * 15_000)
        return torch.relu(x)
