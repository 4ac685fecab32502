"""Product of two matrices.

Category: matmul.
At the GPU sizes (8192 x 4096 times 4096 x 8192): 2 * 8192 * 4096 * 8192 = 5.5e11 operations, 1.6 ms at 350 TFLOP/s
(TF32) and 11 ms at 50 TFLOP/s (float32); the 0.54 GB of operands and result take 0.1 ms.
The operands are scaled to a result of about 0.03: there, and with both operands three times larger, a TF32 product
(relative error 3e-4) stays within 1e-3.
A library's kernel is near what the tensor cores do: to come up to it takes deep pipelines of asynchronous copies, tiles
that swizzle shared memory, and an order of tiles that keeps operands in the cache.
Bound: 0.537 GB, 0.55 TFLOP.
"""

import torch
from torch import nn

M = 8192
K = 4096
N = 8192
SIZES = {"gpu": {"M": 8192, "K": 4096, "N": 8192}, "cpu": {"M": 512, "K": 512, "N": 768}}


class Model(nn.Module):
    """c = a @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Maps a (M, K) and b (K, N) to c (M, N)."""
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    scale = 0.03**0.5 / K**0.25  # the product of the two scales times sqrt(K) is 0.03
    return [scale * torch.randn(M, K), scale * torch.randn(K, N)]


def get_init_inputs() -> list[int]:
    return []
