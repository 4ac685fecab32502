"""Products with operands cut to TF32: what a kernel does that feeds tensor cores without rounding first.

A tensor core ignores the low 13 bits of a float32 operand. PyTorch's own kernels round to them before; many honest ones
leave it to the hardware, and are off by about twice as much, to one side.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from .dispatch import DispatchMode

_LOW_BITS = 0x1FFF
_aten: Any = torch.ops.aten
_OPERANDS: dict[Any, slice] = {
    _aten.mm: slice(0, 2), _aten.bmm: slice(0, 2), _aten.addmm: slice(1, 3), _aten.baddbmm: slice(1, 3),
    _aten.mv: slice(0, 2), _aten.addmv: slice(1, 3), _aten.convolution: slice(0, 2),
    _aten._scaled_dot_product_flash_attention: slice(0, 3), _aten._scaled_dot_product_efficient_attention: slice(0, 3),
    _aten._scaled_dot_product_cudnn_attention: slice(0, 3), _aten._cudnn_rnn: slice(0, 2),
}  # fmt: skip
"""Which arguments are operands."""


class TruncatedProducts(DispatchMode):
    """While it is active the operands of products are cut. `products` counts them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = _OPERANDS.get(func.overloadpacket)
        if operands is not None:
            self.products += 1
            cut = tree_map(_truncate, list(args[operands]))
            args = (*args[: operands.start], *cut, *args[operands.stop :])
        return func(*args, **(kwargs or {}))


def _truncate(x: Any) -> Any:
    if not isinstance(x, torch.Tensor) or x.dtype is not torch.float32:
        return x
    return (x.view(torch.int32) & ~_LOW_BITS).view(torch.float32)
