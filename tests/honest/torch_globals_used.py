"""Sets what a practitioner sets: thread count, matmul precision, gradient mode, a warnings filter; restores nothing."""

import os
import warnings

import torch

PROBLEM = "core/level1/matmul"

warnings.simplefilter("ignore")
torch.set_num_threads(max(1, os.cpu_count() or 1))
torch.set_float32_matmul_precision("high")
torch.set_grad_enabled(False)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)
