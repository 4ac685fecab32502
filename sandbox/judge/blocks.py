"""Neighbours in memory, 32 to 4096 at a time: how they are cut from an output, and what is kept of each block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..layout import Leaf
from . import kernels

_SHORT_ROW, _LONG_ROW, _BLOCK, _LONG_BLOCK = 32, 4096, 256, 1024
LEAST_FOR_RMS = 32
"""Elements in a block whose root mean square is judged: of fewer it says little."""
_LARGEST = 3.5e38
"""What is beyond fp32's range says nothing about its neighbours' scale."""
PLAIN = 1e15
"""Between this and its inverse fp32 holds squares, and sums of thousands of them."""


@dataclass
class Blocks:
    """By block of one output, float64: elements, sums of squares, the largest magnitude, whether most were cut off, and
    whether all elements are one number."""

    size: torch.Tensor
    squares: torch.Tensor
    largest: torch.Tensor
    cut_off: torch.Tensor
    repeated: torch.Tensor


@dataclass
class Errors:
    """By block of one output, float64: elements, the largest difference from what is expected, sums of squares of the
    differences and of what is expected. Of no use where some difference is not `finite`."""

    size: torch.Tensor
    largest: torch.Tensor
    squares: torch.Tensor
    values: torch.Tensor
    finite: bool

    @property
    def rms(self) -> torch.Tensor:
        return (self.squares / self.size).sqrt()


def slice_length(leaf: Leaf) -> int:
    """Elements in a slice along the outermost axis; all of them where there is but one axis."""
    sizes = [size for stride, size in sorted(zip(leaf.strides, leaf.shape, strict=True)) if size > 1]
    return math.prod(sizes[:-1]) if len(sizes) > 1 else max(1, leaf.elements)


def block_length(leaf: Leaf) -> int:
    """Whole rows of the fastest axis where they are of a good length, so that a block holds one row's scale."""
    sizes = [size for stride, size in sorted(zip(leaf.strides, leaf.shape, strict=True)) if size > 1]
    row = sizes[0] if sizes else 1
    if row < _SHORT_ROW:
        return _BLOCK
    if row <= _LONG_ROW:
        return row
    return next((length for length in range(_LONG_BLOCK, _BLOCK - 1, -1) if row % length == 0), _LONG_BLOCK)


def float64_leaf(leaf: Leaf) -> Leaf:
    """The leaf that holds the same output computed in float64."""
    kinds: dict[bool, Any] = {True: "complex128", False: "float64"}
    dtype = leaf.torch_dtype
    if dtype.is_floating_point or dtype.is_complex:
        return Leaf(leaf.shape, leaf.strides, kinds[dtype.is_complex])
    return leaf


def off_by(e: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Its magnitude is what counts; infinite or NaN where either is."""
    if e.is_complex():
        return (v.to(e.dtype) - e).abs()
    return v - e if e.dtype is torch.float64 else v.float() - e.float()


def rows_of(part: torch.Tensor, length: int) -> list[torch.Tensor]:
    """A row for each block: those of full length, and a shorter last one."""
    whole = len(part) // length * length
    return [rows for rows in (part[:whole].view(-1, length), part[whole:].view(1, -1)) if rows.numel() > 0]


def fit_one_pass(e: torch.Tensor, f: torch.Tensor) -> bool:
    """Whether `errors_of` takes one pass over these, however many elements there are."""
    return f.dtype is torch.float32 and e.dtype in (torch.float32, torch.float64) and kernels.may_take(e, f)


def errors_of(e: torch.Tensor, f: torch.Tensor, length: int) -> Errors:
    """Of two flat floating tensors; a last block may be shorter."""
    size = torch.full((-(-len(f) // length),), float(length), dtype=torch.float64, device=f.device)
    size[-1] = len(f) - (len(size) - 1) * length
    if fit_one_pass(e, f):
        largest, squares, values = kernels.errors(e, f, length)
        return Errors(size, largest, squares, values, finite=bool((largest >= 0).all()))
    off = [rows.float() for rows in rows_of(off_by(e, f), length)]
    largest = torch.cat([torch.stack(torch.aminmax(rows, dim=1)).abs().amax(dim=0).double() for rows in off])
    norms = torch.cat([torch.linalg.vector_norm(rows, dim=1).double() for rows in off])
    squares = torch.where(largest < 1 / PLAIN, size * largest.square(), norms.square())  # where those vanish
    e = e.float() if e.dtype.itemsize == 1 else e  # of fp8 PyTorch takes no norm
    values = torch.cat([torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in rows_of(e, length)])
    return Errors(size, largest, squares, values.square(), finite=bool(torch.isfinite(largest).all()))


def summarise(parts: Iterator[torch.Tensor], length: int) -> Blocks:
    """Of finite elements within fp32's range."""
    summaries = [_summarise_part(part, length) for part in parts]
    if not summaries:
        none = torch.zeros(0, dtype=torch.float64)
        return Blocks(none, none, none, none.bool(), none.bool())
    return Blocks(*(torch.cat(column) for column in zip(*summaries, strict=True)))


def _summarise_part(part: torch.Tensor, length: int) -> tuple[torch.Tensor, ...]:
    if part.is_complex():
        part = part.abs()
    summaries = [_summarise_rows(rows) or _summarise_any_rows(rows) for rows in rows_of(part, length)]
    return tuple(torch.cat(column) for column in zip(*summaries, strict=True))


def _summarise_rows(rows: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
    """In few passes; None where a square may overflow or vanish, or a number is not finite."""
    x = rows if rows.dtype is torch.float64 else rows.float()
    low, high = torch.aminmax(x, dim=1)
    largest = torch.maximum(low.abs(), high.abs())
    if not bool(((largest < PLAIN) & ((largest > 1 / PLAIN) | (largest == 0))).all()):  # NaN is not
        return None
    size = torch.full_like(largest, rows.shape[1], dtype=torch.float64)
    others = torch.count_nonzero(x, dim=1)
    cut_off = (others < LEAST_FOR_RMS) & (others < size)
    return size, torch.linalg.vector_norm(x, dim=1).double().square(), largest.double(), cut_off, low == high


def _summarise_any_rows(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    size = torch.full((len(rows),), float(rows.shape[1]), dtype=torch.float64, device=rows.device)
    x = rows.double().abs()
    x = torch.where(x <= _LARGEST, x, 0.0)  # NaN is not
    others = (rows != 0).sum(dim=1)
    cut_off = (others < LEAST_FOR_RMS) & (others < size)
    return size, x.square().sum(dim=1), x.amax(dim=1), cut_off, (rows == rows[:, :1]).all(dim=1)
