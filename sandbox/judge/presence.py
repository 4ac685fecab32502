"""On the CPU: whether outputs were there when their runner said so, by a look at its memory while it stands still.

Work that is put off to the copy, whose time is not forward's own, needs no inputs where it has kept what it needs of
them, where weights are all that it needs, or where the reference returns a part of its inputs, so that these stay.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..layout import Layout, Leaf

UNSEEN = "the judge sees no runner's memory here: whether outputs were there before they were copied is not known"
"""The flag of a verdict on the CPU that was had without a look."""
_PLACES = 128
"""Of each output, drawn anew each time: of one that lacks a twentieth a look misses what is missing once in 700."""
_MOST_PROCESSES = 64


@dataclass(frozen=True)
class Look:
    """What lay in a few places of outputs, in the memory of each process of a runner.

    Attributes:
        places: (first byte in the slot, bytes) each.
        found: by process, what was there; nothing where there was no memory.
    """

    places: Sequence[tuple[int, int]]
    found: Sequence[Sequence[bytes]]

    def saw(self, slot: torch.Tensor) -> bool:
        """Whether one of the processes held what is in the slot now."""
        content = slot.numpy()
        return [content[first : first + size].tobytes() for first, size in self.places] in self.found


def look(pids: Iterable[int], said: Any, layout: Layout) -> Look | None:
    """Looks for outputs where a runner said that they are; None where the kernel shows the judge no other's memory.

    `said`: of each output the address and the strides.
    """
    generator = random.Random(secrets.randbits(128))
    places: list[tuple[int, int]] = []
    addresses: list[int] = []
    for index, (leaf, offset) in enumerate(zip(layout.leaves, layout.offsets, strict=True)):
        size = leaf.torch_dtype.itemsize
        address, strides = _read(said, index, leaf)
        for _ in range(min(_PLACES, leaf.elements)):
            at = [generator.randrange(length) for length in leaf.shape]
            places.append((offset + size * _position(at, leaf.strides), size))
            addresses.append(address + size * _position(at, strides))
    found = []
    for pid in sorted(pids)[:_MOST_PROCESSES]:
        with contextlib.suppress(OSError):
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                found.append(
                    [_bytes_at(memory, address, size) for address, (_, size) in zip(addresses, places, strict=True)]
                )
            finally:
                os.close(memory)
    return Look(places, found) if found else None


def _read(said: Any, index: int, leaf: Leaf) -> tuple[int, Sequence[int]]:
    """What an untrusted runner says of one output; an address where nothing is, unless it is of the known form."""
    with contextlib.suppress(TypeError, IndexError, KeyError, ValueError):
        address, strides = said[index]
        if type(address) is int and len(strides) == len(leaf.shape) and all(type(step) is int for step in strides):
            return address, strides
    return 0, leaf.strides


def _position(at: Sequence[int], strides: Sequence[int]) -> int:
    return sum(index * step for index, step in zip(at, strides, strict=True))


def _bytes_at(memory: int, address: int, size: int) -> bytes:
    with contextlib.suppress(OSError, OverflowError, ValueError):
        return os.pread(memory, size, address)
    return b""
