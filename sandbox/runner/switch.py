"""What a problem's source says of how its model is called, where that is not KernelBench's way.

kbenv writes these constants behind a source, for reference and submission alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from ..layout import map_tensors

KEEPS_TYPES = "_kbenv_keeps_types"
"""True: floating inputs and weights keep the types that they are made in, whatever the precision."""
EVALUATES = "_kbenv_evaluates"
"""True: models are in evaluation mode."""
WRITES = "_kbenv_writes"
"""Positions of arguments that forward may write into, -1 for all; what they hold after the call are outputs too."""

BITS = "_kbenv_bits"
"""True: floating outputs are given as their bits, which are equal or not."""
CHECKER = "_kbenv_check"
"""A function of the list of arguments and the output: whether that is right."""


def as_bits(output: Any) -> Any:
    """The output with floating tensors as integers; both zeros are one."""

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return (tensor + 0.0).contiguous().view(_INTEGERS[tensor.dtype.itemsize])

    return map_tensors(output, bits)


_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_of(problem: ModuleType, precision: torch.dtype) -> torch.dtype | None:
    """What floating inputs and weights are cast to; None: they keep their types."""
    return None if getattr(problem, KEEPS_TYPES, False) else precision


class Written:
    """Copies of the arguments that forward may write into, always at the same addresses.

    Slots stay as they are, so that a call can be repeated. The copying is part of every call, of the reference's as of
    the submission's: it brings a speedup nearer to 1, never further from it.
    """

    def __init__(self, positions: tuple[int, ...] = ()) -> None:
        self.positions = positions
        self._copies: dict[tuple[int, int], torch.Tensor] = {}

    def lend(self, arguments: Any) -> Any:
        """The arguments, those that may be written into copied."""
        if not self.positions:
            return arguments
        lent = list(arguments)
        for position in self._in(lent):
            lent[position] = self._copy(position, lent[position])
        return lent

    def join(self, output: Any, lent: Any) -> Any:
        """The output, with what became of those arguments."""
        return [output, [lent[position] for position in self._in(lent)]] if self.positions else output

    def _in(self, lent: list[Any]) -> Sequence[int]:
        if (last := max(self.positions)) >= len(lent):
            raise ValueError(
                f"the problem says that forward writes into argument {last}, counted from 0; get_inputs gives "
                f"{len(lent)}"
            )
        return range(len(lent)) if -1 in self.positions else self.positions

    def _copy(self, position: int, argument: Any) -> Any:
        count = 0

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal count
            key = position, count
            count += 1
            kept = self._copies.get(key)
            if kept is None or (kept.shape, kept.dtype, kept.stride()) != (tensor.shape, tensor.dtype, tensor.stride()):
                kept = self._copies[key] = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )
            return kept.copy_(tensor)

        return map_tensors(argument, copied)
