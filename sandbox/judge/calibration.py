"""A tolerance at the output's own scale: how far the reference itself is from the truth, block by block.

For each block of an output (256 to 4096 neighbours in memory) two numbers are kept: the root mean square of what is
expected, and that of the reference's own error there, the largest over its variants (in fp32, under the baseline's
flags, on inputs moved by a unit in the last place). An element may be off by `element_factor` times the block's error,
a block's root mean square by `rms_factor` times; each has a floor relative to the values, since where TF32 plays no
part the reference's error is far below what honest arithmetic may differ by.

Why these statistics: rounding errors of independent operations are close to normal, so that the largest of 10^9 lies
near 6 standard deviations; an honest kernel that truncates where the reference rounds has twice the error. The element
bound leaves room for both and finds single wrong elements; the block bound finds what is a little wrong everywhere,
such as a computation in bfloat16 (eight times TF32's error).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..layout import Arena, Leaf
from .compare import CHUNK_ELEMENTS, Comparison, describe_element

_SHORT_ROW, _LONG_ROW, _BLOCK, _LONG_BLOCK = 32, 4096, 256, 1024
_LEAST_FOR_RMS = 64
"""Elements in a block whose root mean square is judged: of fewer it says little."""
_TINY = 1e-7
"""Of the output's largest block: what is below it is not judged relative to itself."""
_DENORMAL = 1e-40
"""Absolute: below what fp32 resolves, and never zero."""
ILL_CONDITIONED = 0.03
"""Relative error of the reference beyond which its output says little about what is right."""


@dataclass(frozen=True)
class Rule:
    """The protocol's numbers."""

    element_factor: float
    element_floor: float
    rms_factor: float
    rms_floor: float


@dataclass
class Scale:
    """Of one output in one slot: sums of squares by block, float64. `length`: elements in a block."""

    length: int
    value: torch.Tensor
    error: torch.Tensor
    ambiguous: torch.Tensor | None = field(default=None)
    """Integer outputs: elements on which the reference's own variants disagree."""

    @property
    def relative(self) -> float:
        """The reference's error over the whole output."""
        value = float(self.value.sum())
        return math.sqrt(float(self.error.sum()) / value) if value > 0 else 0.0


def block_length(leaf: Leaf) -> int:
    """Whole rows of the fastest axis where they are of a good length, so that a block holds one row's scale."""
    sizes = [size for stride, size in sorted(zip(leaf.strides, leaf.shape, strict=True)) if size > 1]
    row = sizes[0] if sizes else 1
    if row < _SHORT_ROW:
        return _BLOCK
    if row <= _LONG_ROW:
        return row
    return next((length for length in range(_LONG_BLOCK, _BLOCK - 1, -1) if row % length == 0), _LONG_BLOCK)


def clearly_within(rule: Rule, expected: Arena, found: Arena, slot: int, device: str) -> Comparison | None:
    """A test in fp32 arithmetic that suffices: None where it does not settle the matter.

    In every block the largest difference from the fp32 reference is at most `rms_floor` times the mean of the absolute
    values, which root mean squares of error and of value bound from both sides: no square to overflow or vanish.
    """
    into = Comparison()
    for index, leaf in enumerate(expected.layout.leaves):
        length = block_length(leaf)
        for e, f in zip(
            _parts(expected, slot, index, length, device), _parts(found, slot, index, length, device), strict=True
        ):
            into.elements += e.numel()
            if torch.equal(e, f):
                continue
            if not leaf.torch_dtype.is_floating_point or leaf.torch_dtype is torch.float64:
                return None
            value, difference = e.float().abs(), (f.float() - e.float()).abs()
            whole = len(value) // length * length
            for v, d in ((value[:whole].view(-1, length), difference[:whole].view(-1, length)),
                         (value[whole:].view(1, -1), difference[whole:].view(1, -1))):  # fmt: skip
                if d.numel() == 0:
                    continue
                limit, largest = rule.rms_floor * v.mean(dim=1), d.amax(dim=1)
                if not bool(((largest <= limit) & torch.isfinite(limit)).all()):  # NaN is not within
                    return None
                into.add_errors(index, float(largest.max()), 0.0)
                into.tolerance_used = max(into.tolerance_used, float((largest / limit).nan_to_num(0.0).max()))
    return into


class Calibration:
    """What is expected in a slot, and how sure that is."""

    def __init__(self, rule: Rule, device: str) -> None:
        self.rule = rule
        self._device = device
        self._scales: dict[tuple[int, int], Scale] = {}
        self.relative: dict[int, float] = {}
        """By output: the largest relative error of the reference seen so far; it stands in where blocks are few."""

    def begin(self, expected: Arena, slot: int, *, row: int | None = None) -> None:
        """Forgets the slot and takes the values from `expected` (its slot `row`, where that is another)."""
        for index, leaf in enumerate(expected.layout.leaves):
            length = block_length(leaf)
            value = _squares(
                (part for part in _parts(expected, slot if row is None else row, index, length, self._device)), length
            )
            self._scales[slot, index] = Scale(length, value, torch.zeros_like(value))

    def add_variant(self, expected: Arena, variant: Arena, slot: int, *, row: int | None = None) -> None:
        """One more run of the reference on the slot: its difference is an error it may have."""
        for index, leaf in enumerate(variant.layout.leaves):
            scale = self._scales[slot, index]
            pairs = zip(
                _parts(expected, slot if row is None else row, index, scale.length, self._device),
                _parts(variant, slot, index, scale.length, self._device), strict=True,
            )  # fmt: skip
            if leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex:
                error = _squares((_finite_difference(e, v) for e, v in pairs), scale.length)
                scale.error = torch.maximum(scale.error, error)
            else:
                differs = torch.cat([e != v for e, v in pairs])
                scale.ambiguous = differs if scale.ambiguous is None else scale.ambiguous | differs

    def finish(self, slot: int) -> float:
        """The slot's largest relative error, which later slots do not fall below."""
        largest = 0.0
        for (of_slot, index), scale in self._scales.items():
            if of_slot == slot:
                largest = max(largest, scale.relative)
                if scale.relative < ILL_CONDITIONED:
                    self.relative[index] = max(self.relative.get(index, 0.0), scale.relative)
        return largest

    def compare(self, expected: Arena, found: Arena, slot: int, fp32: Arena, *, row: int | None = None) -> Comparison:
        """Judges every element and every block of a slot.

        `expected` holds float64 (in its slot `row`) or the exact fp32 reference; where `fp32`, the reference in its own
        type, is not finite, the same must stand, or what float64 says.
        """
        into = Comparison()
        for index, leaf in enumerate(found.layout.leaves):
            scale = self._scales[slot, index]
            start = 0
            triples = zip(
                _parts(expected, slot if row is None else row, index, scale.length, self._device),
                _parts(found, slot, index, scale.length, self._device),
                _parts(fp32, slot, index, scale.length, self._device), strict=True,
            )  # fmt: skip
            floating = leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex
            for e, f, r in triples:
                if floating:
                    self._compare_floating(into, leaf, index, slot, start, scale, e, f, r)
                else:
                    self._compare_integers(into, leaf, index, slot, start, scale, e, f)
                start += e.numel()
        return into

    def _compare_integers(
        self, into: Comparison, leaf: Leaf, index: int, slot: int, start: int, scale: Scale,
        e: torch.Tensor, f: torch.Tensor,
    ) -> None:  # fmt: skip
        wrong = e != f
        if scale.ambiguous is not None:
            wrong &= ~scale.ambiguous[start : start + e.numel()]
        error = (f.double() - e.double()).abs()
        _count(into, leaf, index, slot, start, e, f, wrong, torch.where(wrong, error, 0.0))

    def _compare_floating(
        self, into: Comparison, leaf: Leaf, index: int, slot: int, start: int, scale: Scale,
        e: torch.Tensor, f: torch.Tensor, r: torch.Tensor,
    ) -> None:  # fmt: skip
        rule, length = self.rule, scale.length
        first, count = start // length, -(-e.numel() // length)
        sizes = torch.full((count,), float(length), dtype=torch.float64, device=e.device)
        sizes[-1] = e.numel() - (count - 1) * length
        blocks = slice(first, first + count)
        value = (scale.value[blocks] / sizes).sqrt()
        least = math.sqrt(float(scale.value.max()) / length) * _TINY
        error = torch.maximum((scale.error[blocks] / sizes).sqrt(), value * self.relative.get(index, 0.0))

        found, exact, fp32 = f.double(), e.double(), r.double()
        if e.is_complex():
            found, exact, fp32 = (torch.view_as_real(x).reshape(-1) for x in (f, e, r))
            length, sizes = 2 * length, 2 * sizes
        usual = torch.isfinite(fp32)
        same = (found == fp32) | (torch.isnan(found) & torch.isnan(fp32))
        finite = torch.isfinite(found) & torch.isfinite(exact)
        difference = torch.where(finite, (found - exact).abs(), 0.0)
        spread = error.repeat_interleave(length)[: len(found)]
        size = torch.maximum(exact.abs(), value.repeat_interleave(length)[: len(found)])
        allowed = rule.element_factor * spread + rule.element_floor * size + least + _DENORMAL
        within = finite & (difference <= allowed)
        wrong = torch.where(usual, ~within, ~(same | within))
        square = torch.zeros(count * length, dtype=torch.float64, device=e.device)
        square[: len(found)] = torch.where(finite & usual, difference, 0.0).square()
        rms = (square.view(count, length).sum(dim=1) / sizes).sqrt()
        limit = rule.rms_factor * error + rule.rms_floor * value + least + _DENORMAL
        judged = torch.where(sizes >= _LEAST_FOR_RMS, rms / limit, 0.0)
        bad = judged > 1
        if bool(bad.any()):  # each element of the block is a little off: all count that are off at all
            off = bad.repeat_interleave(length)[: len(found)] & (difference > 0)
            wrong |= off
        into.tolerance_used = max(into.tolerance_used, float((difference / allowed).max()), float(judged.max()))
        if e.is_complex():
            wrong = wrong.view(-1, 2).any(dim=1)
            difference = difference.view(-1, 2).amax(dim=1)
        _count(into, leaf, index, slot, start, e, f, wrong, difference)


def _count(
    into: Comparison, leaf: Leaf, index: int, slot: int, start: int,
    e: torch.Tensor, f: torch.Tensor, wrong: torch.Tensor, difference: torch.Tensor,
) -> None:  # fmt: skip
    into.elements += e.numel()
    count = int(wrong.sum())
    into.mismatched += count
    largest = float(difference.max()) if difference.numel() else 0.0
    size = e.abs().double()
    ratio = torch.where(torch.isfinite(size) & (size > 0), difference / size, 0.0)
    into.add_errors(index, largest, float(ratio.max()) if ratio.numel() else 0.0)
    if count and into.first is None:
        at = int(wrong.nonzero()[0, 0])
        into.first = describe_element(leaf, index, start + at, e[at].item(), f[at].item())


def _parts(arena: Arena, slot: int, index: int, length: int, device: str) -> Iterator[torch.Tensor]:
    """A leaf's elements in memory order, whole blocks at a time."""
    flat = arena.flat_leaf(slot, index)
    step = max(1, CHUNK_ELEMENTS[device] // length) * length
    for start in range(0, len(flat), step):
        yield flat[start : start + step].to(device)


def _finite_difference(e: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if e.is_complex():
        return torch.view_as_real(v.to(e.dtype) - e).reshape(-1, 2).square().sum(dim=1).sqrt().nan_to_num(0.0, 0.0, 0.0)
    difference = v.double() - e.double()
    return torch.where(torch.isfinite(difference), difference, 0.0)


def _squares(parts: Iterator[torch.Tensor], length: int) -> torch.Tensor:
    """Sums of squares by block, over finite elements."""
    sums = []
    for part in parts:
        x = part.abs().double()
        x = torch.where(torch.isfinite(x), x, 0.0).square()
        padded = torch.zeros(-(-len(x) // length) * length, dtype=torch.float64, device=x.device)
        padded[: len(x)] = x
        sums.append(padded.view(-1, length).sum(dim=1))
    return torch.cat(sums) if sums else torch.zeros(0, dtype=torch.float64)


def float64_leaf(leaf: Leaf) -> Leaf:
    """The leaf that holds the same output computed in float64."""
    kinds: dict[bool, Any] = {True: "complex128", False: "float64"}
    dtype = leaf.torch_dtype
    if dtype.is_floating_point or dtype.is_complex:
        return Leaf(leaf.shape, leaf.strides, kinds[dtype.is_complex])
    return leaf
