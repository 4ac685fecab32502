"""Element-by-element comparison of outputs, in chunks, in float64: pure functions of two arenas."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ..layout import Arena, Leaf
from . import kernels

CHUNK_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 23}
"""In float64 and with some twenty temporaries: on the CPU they stay in its cache (ten times faster than 2**23)."""
PASS_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 25}
"""With a few temporaries: of less a GPU is done sooner than some operators are launched and waited for."""

_SETTLED = 1 - 1e-5
"""Of a bound, in fp32 arithmetic."""


@dataclass
class Comparison:
    """What was seen over all elements compared so far. Errors are over elements that are finite on both sides."""

    elements: int = 0
    mismatched: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    first: dict[str, Any] | None = field(default=None)
    output_errors: dict[int, float] = field(default_factory=dict)
    """Largest absolute error by output."""
    widened_to: float | None = None
    """The largest absolute tolerance used, where the baseline's own error widened it."""

    looked_closer: int = 0
    """Elements that were outside the tolerance at first, and judged by more runs of the reference."""

    tolerated: int = 0
    """Elements that are outside the tolerance, and that its share allows."""

    loss: float = 0.0
    """Of the values, by how much more than usual each may be off: see Truth.loss."""

    tolerance_used: float = 0.0
    """The largest share of a calibrated tolerance that any element or block used; above 1 it is outside."""

    reason: str | None = None
    """Of what is not right by a problem's own comparison: which output, in what, and by how much."""

    def add_errors(self, index: int, absolute: float, relative: float) -> None:
        """Two finite float64 numbers may be further apart than one can say; a verdict's numbers are finite."""
        self.max_abs_error = min(max(self.max_abs_error, absolute), sys.float_info.max)
        self.max_rel_error = min(max(self.max_rel_error, relative), sys.float_info.max)
        self.output_errors[index] = max(self.output_errors.get(index, 0.0), absolute)

    def merge(self, other: Comparison) -> None:
        """Adds what another comparison saw."""
        self.elements += other.elements
        self.mismatched += other.mismatched
        self.max_abs_error = max(self.max_abs_error, other.max_abs_error)
        self.max_rel_error = max(self.max_rel_error, other.max_rel_error)
        self.looked_closer += other.looked_closer
        self.tolerated += other.tolerated
        self.first = self.first or other.first
        self.reason = self.reason or other.reason
        self.tolerance_used = max(self.tolerance_used, other.tolerance_used)
        if other.widened_to is not None:
            self.widened_to = max(self.widened_to or 0.0, other.widened_to)

    @property
    def passed(self) -> bool:
        return self.mismatched == 0 and self.elements > 0

    def evidence(self) -> dict[str, Any]:
        evidence: dict[str, Any] = {
            "elements": self.elements, "mismatched": self.mismatched,
            "max_abs_error": self.max_abs_error, "max_rel_error": self.max_rel_error,
        }  # fmt: skip
        if self.widened_to is not None:
            evidence["tolerance_widened_to"] = self.widened_to
        if self.tolerance_used:
            evidence["tolerance_used"] = min(self.tolerance_used, sys.float_info.max)
        if self.loss:
            evidence["loss"] = self.loss
        if self.looked_closer:
            evidence["looked_closer"] = self.looked_closer
        if self.tolerated:
            evidence["tolerated"] = self.tolerated
        if self.reason is not None:
            evidence["reason"] = self.reason
        return evidence | ({"first_mismatch": self.first} if self.first else {})


def compare(
    expected: Arena, found: Arena, slots: range, absolute: Sequence[float], relative: float, device: str
) -> Comparison:
    """Compares every element of `slots`: |found - expected| <= absolute + relative * |expected|, as torch.allclose.

    `absolute` has one tolerance per output.

    NaN and infinities must stand at the same places (with the same sign). Integers and booleans must be equal. Of
    complex numbers the parts are compared. The arenas may lie on the host: chunks go to `device`.
    """
    into = Comparison()
    size = expected.layout.slot_bytes
    part = slice(slots.start * size, slots.stop * size)
    if same_bytes(expected.flat[part], found.flat[part]):  # equal bytes are equal values, NaN included
        into.elements += len(slots) * sum(leaf.elements for leaf in expected.layout.leaves)
        return into
    for index, leaf in enumerate(expected.layout.leaves):
        for slot, start, e, f in _chunks(expected, found, slots, index, leaf, PASS_ELEMENTS[device]):
            e, f = e.to(device).reshape(-1), f.to(device).reshape(-1)
            if not _settle(e, f, absolute[index], relative, into, index):
                step = CHUNK_ELEMENTS[device]
                for begin in range(0, len(e), step):
                    part = slice(begin, begin + step)
                    _compare_chunk(e[part], f[part], absolute[index], relative, into, leaf, index, slot, start + begin)
    return into


def compare_matched(expected: Arena, found: Arena, slot: int, tolerance: Mapping[str, Any], device: str) -> Comparison:
    """As `compare`, but of each output only a share must be within, if no element is off by more than a cap.

    Integers must be equal, NaN and infinities stand where the reference's do, and not all may be zero where the
    reference's are not: of an output that is sparse zeros are a large share.
    """
    into, share, cap = Comparison(), tolerance["share"], tolerance["cap"]
    for index, leaf in enumerate(expected.layout.leaves):
        one, step = Comparison(), CHUNK_ELEMENTS[device]
        may_differ = leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex
        expects_some = found_some = False
        for start in range(0, leaf.elements, step):
            e, f = (arena.flat_leaf(slot, index)[start : start + step].to(device) for arena in (expected, found))
            _compare_chunk(e, f, tolerance["absolute"], tolerance["relative"], one, leaf, index, slot, start)
            if may_differ:
                e, f = (x if x.is_complex() else x.double() for x in (e, f))
                same = (e == f) | ((e != e) & (f != f))
                may_differ = bool((same | (torch.isfinite(e) & torch.isfinite(f))).all())
                expects_some, found_some = expects_some or bool((e != 0).any()), found_some or bool((f != 0).any())
        may_differ = may_differ and (found_some or not expects_some)
        allowed = leaf.elements - math.ceil(share * leaf.elements) if may_differ else 0
        if cap is not None and one.max_abs_error > cap:
            one.mismatched = max(1, one.mismatched)
        elif one.mismatched <= allowed:
            one.tolerated, one.mismatched, one.first = one.mismatched, 0, None
        into.merge(one)
        into.add_errors(index, one.max_abs_error, one.max_rel_error)
    return into


def _chunks(
    expected: Arena, found: Arena, slots: range, index: int, leaf: Leaf, chunk: int
) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """Pairs of equal chunks with the slot and the element they start at; small leaves several slots at a time."""
    if leaf.elements == 0:
        return
    if leaf.elements <= chunk:
        step = chunk // leaf.elements
        for first in range(slots.start, slots.stop, step):
            count = min(step, slots.stop - first)
            yield first, 0, expected.rows(index, first, count), found.rows(index, first, count)
        return
    for slot in slots:
        e, f = expected.flat_leaf(slot, index), found.flat_leaf(slot, index)
        for start in range(0, leaf.elements, chunk):
            yield slot, start, e[start : start + chunk], f[start : start + chunk]


def _compare_chunk(
    e: torch.Tensor, f: torch.Tensor, absolute: float, relative: float, into: Comparison,
    leaf: Leaf, index: int, slot: int, start: int,
) -> None:  # fmt: skip
    if _settle(e, f, absolute, relative, into, index):
        return
    parts = 2 if e.is_complex() else 1
    if parts == 2:
        e, f = torch.view_as_real(e).reshape(-1), torch.view_as_real(f).reshape(-1)
    same = (e == f) | ((e != e) & (f != f))
    e, f = e.double(), f.double()
    finite = torch.isfinite(e) & torch.isfinite(f)
    error = torch.where(finite, (f - e).abs(), 0.0)
    size = e.abs()
    wrong = ~same
    if leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex:
        wrong &= ~(finite & (error <= absolute + relative * size))
    nonzero = finite & (size > 0)
    count, largest, ratio = torch.stack(
        [
            wrong.view(-1, parts).any(dim=1).sum().double(),
            error.max(),
            torch.where(nonzero, error / size, 0.0).max(),
        ]
    ).tolist()
    into.elements += e.numel() // parts
    into.mismatched += int(count)
    into.add_errors(index, largest, ratio)
    if count and into.first is None:
        at = int(wrong.nonzero()[0, 0])
        into.first = describe_element(leaf, index, start + at // parts, e[at].item(), f[at].item())


def _settle(e: torch.Tensor, f: torch.Tensor, absolute: float, relative: float, into: Comparison, index: int) -> bool:
    """Whether all of it is equal; or within and finite, in fp32 arithmetic: few passes."""
    if torch.equal(e, f):
        into.elements += e.numel()
        return True
    if e.dtype is not torch.float32:
        return False
    size, error = e.abs(), (f - e).abs()
    within = (error <= _SETTLED * (absolute + relative * size)).all() & torch.isfinite(error.max())
    if not bool(within):
        return False
    into.elements += e.numel()
    into.add_errors(index, float(error.max()), float(torch.where(size > 0, error / size, 0.0).max()))
    return True


def all_within(exact: Arena, row: int, found: Arena, slot: int, absolute: float, relative: float, device: str) -> bool:
    """Whether all floating elements of a slot that are finite are as near to those of an arena in float64 (its slot
    `row`) as `compare` has it."""
    for index, leaf in enumerate(found.layout.leaves):
        if leaf.torch_dtype.is_floating_point:
            x, f, step = exact.flat_leaf(row, index), found.flat_leaf(slot, index), CHUNK_ELEMENTS[device]
            for start in range(0, leaf.elements, step):
                e, v = (flat[start : start + step].to(device).double() for flat in (x, f))
                if bool(((v - e).abs() > absolute + relative * e.abs()).any()):  # of NaN it is not
                    return False
    return True


def describe_element(leaf: Leaf, index: int, position: int, expected: Any, found: Any) -> dict[str, Any]:
    """Where in which output, what was expected and what was found; `position` in memory order, over whole slots."""
    return {
        "output": index,
        "index": _logical_index(leaf, position % leaf.elements),
        "expected": _number(expected),
        "found": _number(found),
    }


def _number(value: complex) -> float | str:
    return value if not isinstance(value, complex) and math.isfinite(value) else str(value)


def _logical_index(leaf: Leaf, position: int) -> list[int]:
    """The index of the element at a memory position, by the leaf's strides."""
    index = [0] * len(leaf.shape)
    for axis in sorted(range(len(leaf.shape)), key=lambda axis: -leaf.strides[axis]):
        if leaf.shape[axis] > 1:
            index[axis], position = divmod(position, leaf.strides[axis])
    return index


def count_nonfinite(arena: Arena, slot: int, device: str) -> int:
    """How many floating elements of a slot are NaN or infinite."""
    count = 0
    for index, leaf in enumerate(arena.layout.leaves):
        if leaf.torch_dtype.is_floating_point and leaf.elements > 0:
            parts = partial(_floats, arena.flat_leaf(slot, index), device)
            extremes = torch.stack([extreme for part in parts() for extreme in torch.aminmax(part)])
            if not bool(torch.isfinite(extremes).all()):
                count += sum(int((~torch.isfinite(part)).sum()) for part in parts())
    return count


def _floats(flat: torch.Tensor, device: str) -> Iterator[torch.Tensor]:
    """Chunks of a floating leaf on the device, in fp32 at least: not every small type can do more than be stored."""
    for start in range(0, len(flat), PASS_ELEMENTS[device]):
        part = flat[start : start + PASS_ELEMENTS[device]].to(device)
        yield part if part.dtype is torch.float64 else part.float()


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors of whole slots are equal, in chunks: at once needs as much memory again."""
    if kernels.may_take(a, b):
        return not kernels.differ(a, b)
    a, b, step = a.view(torch.int64), b.view(torch.int64), 1 << 25
    return all(
        torch.equal(a[start : start + step], b[start : start + step].to(a.device)) for start in range(0, len(a), step)
    )


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two flat tensors of one type are equal; on a GPU, bit by bit, without memory of its own."""
    if kernels.may_take(a, b) and kernels.are_words(a, b):
        return not kernels.differ(a, b)
    return torch.equal(a, b)


def tied_indices(inputs: Sequence[torch.Tensor], found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where two integers, as indices along an axis of an input, name equal values: of a tie either may be returned.

    Args:
        inputs: of any shapes; those count whose shape is the output's, but for the axis. There is a tie where it is
            one in each of them, and one of them holds more than two values: in a constant or a mask most are equal.
        found, expected: integers of one shape.

    Returns:
        Booleans in the memory order of `expected`.
    """
    tied, searched = torch.ones_like(expected, dtype=torch.bool), False
    for x in inputs:
        if not (x.is_floating_point() or x.dtype is torch.bool) or expected.dtype is torch.bool:
            continue
        equal: torch.Tensor | None = None
        values = x.reshape(-1) if expected.dim() == 0 else x
        for axis in range(values.dim()):
            rest = values.shape[:axis] + values.shape[axis + 1 :]
            if expected.shape == rest:
                e, f = expected.unsqueeze(axis), found.unsqueeze(axis)
            elif expected.dim() == values.dim() and expected.shape[:axis] + expected.shape[axis + 1 :] == rest:
                e, f = expected, found
            else:
                continue
            size = values.shape[axis]
            legal = (e >= 0) & (e < size) & (f >= 0) & (f < size)
            e, f = (index.long().clamp(0, size - 1).to(values.device) for index in (e, f))
            along = legal & (values.gather(axis, e) == values.gather(axis, f)).to(legal.device)
            equal = along.view(expected.shape) if equal is None else equal | along.view(expected.shape)
        if equal is not None:
            tied &= equal
            searched = searched or (x.is_floating_point() and bool(((x != x.amin()) & (x != x.amax())).any()))
    tied &= searched
    return tied.as_strided((tied.numel(),), (1,))


def relative_difference(a: Arena, b: Arena, slot: int, device: str) -> float:
    """Root mean square of the difference over that of `a`, over the finite floating elements of a slot."""
    if same_bytes(a.slot(slot), b.slot(slot)):
        return 0.0
    difference = size = 0.0
    for index, leaf in enumerate(a.layout.leaves):
        if leaf.torch_dtype.is_floating_point:
            step = CHUNK_ELEMENTS[device]
            for start in range(0, leaf.elements, step):
                x, y = (arena.flat_leaf(slot, index)[start : start + step].to(device).double() for arena in (a, b))
                finite = torch.isfinite(x) & torch.isfinite(y)
                difference += float(torch.where(finite, x - y, 0.0).square().sum())
                size += float(torch.where(finite, x, 0.0).square().sum())
    return math.sqrt(difference / size) if size > 0 else 0.0
