"""Operators whose results are off by a rounding: what another order of the same arithmetic may bring about."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from .dispatch import DispatchMode, makes_view

_UNIT = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


class Noise:
    """Moves tensors at random, by up to a share of each element; PyTorch's generators are left alone."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._generators: dict[torch.device, torch.Generator] = {}

    def move(self, x: torch.Tensor) -> torch.Tensor:
        if x.device not in self._generators:
            self._generators[x.device] = torch.Generator(x.device)
            self._generators[x.device].seed()
        share = torch.empty_like(x).uniform_(-self._share, self._share, generator=self._generators[x.device])
        return x * (1 + share)  # which leaves infinities, as of masks, alone


class RoundedOperators(DispatchMode):
    """While it is active a floating tensor that an operator makes is moved by up to a unit in the last place.

    Not what it writes in place, nor what it draws.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noises = {dtype: Noise(unit) for dtype, unit in _UNIT.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or makes_view(func):
            return result
        return tree_map(self._move, result)

    def _move(self, x: Any) -> Any:
        noise = self._noises.get(x.dtype) if isinstance(x, torch.Tensor) else None
        return x if noise is None else noise.move(x)
