"""Products with operands off as TF32 leaves them: cut, or moved at random.

A kernel cuts that feeds tensor cores without rounding first: a tensor core ignores the low 13 bits of a float32
operand. PyTorch's own kernels round to them before; many honest ones leave it to the hardware, and are off by about
twice as much, to one side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .dispatch import DispatchMode
from .rounded import Noise

_LOW_BITS = 0x1FFF
_UNIT = 2.0**-10
_aten: Any = torch.ops.aten
_OPERANDS: dict[Any, slice] = {
    _aten.mm: slice(0, 2), _aten.bmm: slice(0, 2), _aten.addmm: slice(1, 3), _aten.baddbmm: slice(1, 3),
    _aten.mv: slice(0, 2), _aten.addmv: slice(1, 3), _aten.convolution: slice(0, 2),
    _aten._scaled_dot_product_flash_attention: slice(0, 3), _aten._scaled_dot_product_efficient_attention: slice(0, 3),
    _aten._scaled_dot_product_cudnn_attention: slice(0, 3), _aten._cudnn_rnn: slice(0, 2),
}  # fmt: skip
"""Which arguments are operands."""


class ChangedProducts(DispatchMode):
    """While it is active the float32 operands of products are changed. `products` counts them."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products = 0
        self._change = change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = _OPERANDS.get(func.overloadpacket)
        if operands is not None:
            self.products += 1
            changed = tree_map(self._change_fp32, list(args[operands]))
            args = (*args[: operands.start], *changed, *args[operands.stop :])
        return func(*args, **(kwargs or {}))

    def _change_fp32(self, x: Any) -> Any:
        return self._change(x) if isinstance(x, torch.Tensor) and x.dtype is torch.float32 else x


def truncated_products() -> ChangedProducts:
    """Operands are cut to TF32."""
    return ChangedProducts(lambda x: (x.view(torch.int32) & ~_LOW_BITS).view(torch.float32))


def dithered_products() -> ChangedProducts:
    """Operands are moved by up to a unit of TF32 to either side, otherwise in each run.

    Where a result hangs on few of them, the errors of the two ways to round can both be small by chance.
    """
    return ChangedProducts(Noise(_UNIT).move)
