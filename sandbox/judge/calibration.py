"""A tolerance at the output's own scale: how far the reference itself is from the truth, block by block.

For each block of an output (32 to 4096 neighbours in memory) the root mean square of what is expected is kept, and of
the reference's own error there the root mean square and the largest, over its variants (in fp32, under the baseline's
flags, on a GPU with operands of products cut to TF32, on inputs moved by a unit in the last place). An element may be
off by `element_factor` times the block's error or `rms_factor` times the largest in it, a block's root mean square by
`rms_factor` times; each has a floor relative to the values, since where TF32 plays no part the reference's error is far
below what honest arithmetic may differ by.

Of a block of which all but a few elements are zero, something was cut off (a ReLU): the noise beneath cannot be seen in
it. It is judged at the scale of its slice along the outermost axis. A block of one number, repeated, is a single draw
of value and error, either of which may be small by chance: it is judged at the median block's scale where that is
larger.

Why these statistics: rounding errors of independent operations are close to normal, so that the largest of 10^9 lies
near 6 standard deviations. The element bound leaves room for both and finds single wrong elements; the block bound
finds what is a little wrong everywhere, such as a computation in bfloat16 (eight times TF32's error).

One element may be far more sensitive than its neighbours, and close to exact in the reference's few runs by chance.
Where few are outside, they are looked at closer: the reference runs some more times with its operators' results moved
by a unit in the last place, and operands of products by a unit of TF32 where that may be used. What is seen at those
elements alone is allowed there, `element_factor` times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from ..layout import Arena, Leaf
from .blocks import (
    LEAST_FOR_RMS,
    Blocks,
    Errors,
    block_length,
    errors_of,
    fit_one_pass,
    off_by,
    slice_length,
    summarise,
)
from .compare import CHUNK_ELEMENTS, PASS_ELEMENTS, Comparison, describe_element, same_values, tied_indices

_LEAST = 1.2e-38
"""Absolute: the smallest normal number of fp32, below which honest code may flush to zero."""
_SETTLED = 0.7
"""Of a block's bound, which is at most that of its elements: beyond it these are looked at one by one."""
_ROUNDING = 2.0**-24
"""Of an output's usual size, an error is allowed for on other inputs: exp(x) - 1 may be computed by exponential and
subtraction, and is off by that where x is tiny and the reference, which knows better, is not."""
_SUMMED = 16.0
"""Roundings, times `element_factor`."""
_FAR = 4.0
"""Times a block's limit: where what is within alone would pass, those beyond are what is wrong with the block."""
_WIDE, _WIDE_BLOCKS = 1 << 31, 1 << 21
"""Elements at once where a pass needs no memory for each, and blocks, for which there are a dozen numbers."""
_LEAST_BLOCKS = 8
"""Of fewer the median says little."""
ILL_CONDITIONED = 0.03
"""Relative error of the reference beyond which its output says little about what is right."""


@dataclass(frozen=True)
class Rule:
    """The protocol's numbers."""

    element_factor: float
    element_floor: float
    rms_factor: float
    rms_floor: float


@dataclass(frozen=True)
class Deviation:
    """Root mean squares of one variant's error and of what it is held against."""

    rms: float
    value: float

    @property
    def relative(self) -> float:
        return self.rms / self.value if self.value > 0 else 0.0


@dataclass
class Bounds:
    """By block of one output: elements, root mean squares of values and of errors, the largest error; and `relative`:
    the error as a share of any value that is at least to be allowed for."""

    size: torch.Tensor
    value: torch.Tensor
    error: torch.Tensor
    largest_error: torch.Tensor
    relative: float


_BY_BLOCK = ("size", "value", "error", "largest_error")


@dataclass(frozen=True)
class Closer:
    """Elements of one output that were looked at closer: places in the order of memory, ascending, and the largest
    error of the reference's runs at each, float64."""

    places: torch.Tensor
    error: torch.Tensor

    def between(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        here = (self.places >= start) & (self.places < end)
        return self.places[here] - start, self.error[here]


@dataclass
class Scale:
    """Of one output in one slot.

    Attributes:
        length: elements in a block.
        slice_length: elements in a slice along the outermost axis, of all where there is but one axis.
        value: of what is expected.
        error: sums of squares by block of the reference's error, the largest over its variants.
        largest_error: by block.
        ambiguous: integer outputs: where a variant of the reference disagrees, and what it says there.
    """

    length: int
    slice_length: int
    value: Blocks
    error: torch.Tensor
    largest_error: torch.Tensor
    ambiguous: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    @property
    def relative(self) -> float:
        """The reference's error over the whole output."""
        return self.deviation(self.error, 1).relative

    def deviation(self, error: torch.Tensor, elements: int) -> Deviation:
        """Of a variant of the whole output; `error` holds sums of squares by block."""
        squares = torch.stack([error.sum(), self.value.squares.sum()]).tolist()
        return Deviation(*(math.sqrt(square / max(1, elements)) for square in squares))

    @property
    def typical(self) -> float:
        """The relative error of the median block, which a burst of errors in a few does not move."""
        value, error = (squares[self.value.squares > 0] for squares in (self.value.squares, self.error))
        if len(value) < _LEAST_BLOCKS:
            return self.relative
        return float((error / value).median().sqrt())

    @property
    def usual(self) -> float:
        """Root mean square of the median block."""
        return float((self.value.squares / self.value.size).median().sqrt()) if len(self.value.size) else 0.0

    def size_around(self, places: torch.Tensor) -> torch.Tensor:
        """Root mean square of the slice along the outermost axis that each place, in the order of memory, is in."""
        of_slice, (squares,) = self._over_slices(self.value.squares)
        around: torch.Tensor = squares.sqrt()[of_slice[places // self.length]]
        return around

    def _over_slices(self, *by_block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each block's slice along the outermost axis, and for each quantity its mean over the elements of a slice."""
        of_slice = torch.arange(len(self.value.size), device=self.value.size.device) * self.length // self.slice_length
        sums = torch.zeros(1 + len(by_block), int(of_slice[-1]) + 1, dtype=torch.float64, device=of_slice.device)
        sums.index_add_(1, of_slice, torch.stack([self.value.size, *by_block]))
        return of_slice, sums[1:] / sums[0]

    def bounds(self, relative: float, absolute: float) -> Bounds:
        """What blocks are judged by; errors are at least `relative` to the values, and at least `absolute`."""
        size, cut_off = self.value.size, self.value.cut_off
        value, error = ((squares / size).sqrt() for squares in (self.value.squares, self.error))
        if bool(cut_off.any()):
            of_slice, means = self._over_slices(self.value.squares, self.error)
            wide_value, wide_error = means.sqrt()[:, of_slice]
            value = torch.where(cut_off, torch.maximum(value, wide_value), value)
            error = torch.where(cut_off, torch.maximum(error, wide_error), error)
        repeated = self.value.repeated & (self.value.squares > 0)
        if bool(repeated.any()):
            value, error = (
                torch.where(repeated, torch.maximum(by_block, by_block[repeated].median()), by_block)
                for by_block in (value, error)
            )
        error = torch.maximum(error, value * relative).clamp(min=absolute)
        return Bounds(size, value, error, self.largest_error, relative)


class Calibration:
    """What is expected in a slot, and how sure that is."""

    def __init__(self, rule: Rule, device: str) -> None:
        self.rule = rule
        self._device = device
        self._scales: dict[tuple[int, int], Scale] = {}
        self.outside: dict[int, torch.Tensor] = {}
        """By output: where, in the order of memory, the last comparison found it outside; of floating ones."""
        self.relative: dict[int, float] = {}
        """By output: the largest relative error of the reference on inputs just as the problem draws them; it stands in
        where blocks are few."""
        self.usual: dict[int, float] = {}
        """By output: its root mean square on the first such inputs, by the median block."""
        self._moved: set[int] = set()
        """Slots whose inputs are not as the problem draws them."""

    def begin(self, expected: Arena, slot: int, *, row: int | None = None) -> None:
        """Forgets the slot and takes the values from `expected` (its slot `row`, where that is another)."""
        for index, leaf in enumerate(expected.layout.leaves):
            length = block_length(leaf)
            flat = expected.flat_leaf(slot if row is None else row, index)
            parts = (part for (part,) in _parts(self._device, length, flat))
            value = summarise(parts if _is_inexact(leaf) else iter(()), length)
            zero = torch.zeros_like(value.squares)
            self._scales[slot, index] = Scale(length, slice_length(leaf), value, zero, zero)

    def add_variant(
        self, expected: Arena, variant: Arena, slot: int, *, row: int | None = None
    ) -> dict[int, Deviation]:
        """One more run of the reference on the slot: its difference is an error it may have. By floating output."""
        deviations = {}
        for index, leaf in enumerate(variant.layout.leaves):
            scale = self._scales[slot, index]
            e, v = expected.flat_leaf(slot if row is None else row, index), variant.flat_leaf(slot, index)
            if _is_inexact(leaf):
                squares, largest = self._error(e, v, scale.length)
                scale.error = torch.maximum(scale.error, squares)
                scale.largest_error = torch.maximum(scale.largest_error, largest)
                deviations[index] = scale.deviation(squares, leaf.elements)
            else:
                start = 0
                for x, y in _parts(self._device, scale.length, e, v):
                    differs = (x != y).nonzero().flatten()
                    scale.ambiguous.append((start + differs, y[differs]))
                    start += x.numel()
        return deviations

    def _error(self, e: torch.Tensor, v: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of one variant, by block: the sum of squares and the largest; of finite ones, where some are not."""
        if len(e) > 0 and fit_one_pass(e, v):
            errors = [errors_of(x, y, length) for x, y in _parts(self._device, length, e, v)]
            if all(error.finite for error in errors):
                return torch.cat([error.squares for error in errors]), torch.cat([error.largest for error in errors])
        blocks = summarise((off_by(x, y) for x, y in _parts(self._device, length, e, v, wide=False)), length)
        return blocks.squares, blocks.largest

    def finish(self, slot: int, *, lasting: bool, drawn: bool | None = None) -> float:
        """The slot's largest relative error; a `lasting` one later slots do not fall below.

        Neither a probe's lasts nor that of a scaled draw: one that is badly conditioned would loosen all after it.

        Args:
            drawn: the inputs are as the problem draws them, up to a factor; None: as for `lasting`.
        """
        (self._moved.discard if (lasting if drawn is None else drawn) else self._moved.add)(slot)
        for (of_slot, index), scale in self._scales.items():
            if of_slot == slot and lasting:
                self.usual.setdefault(index, scale.usual)
                if scale.relative < ILL_CONDITIONED:
                    self.relative[index] = max(self.relative.get(index, 0.0), scale.typical)
        return max((scale.relative for (of_slot, _), scale in self._scales.items() if of_slot == slot), default=0.0)

    def settle(self, expected: Arena, found: Arena, first: int, calls: int = 1) -> Comparison | None:
        """A test of some slots in few passes that suffices: None where it does not settle the matter.

        In every block the differences from what is expected are within what `compare` allows whatever the reference's
        error on these inputs is: the floors, and the errors that earlier slots have shown.
        """
        into = Comparison()
        for index, leaf in enumerate(expected.layout.leaves):
            if leaf.elements == 0:
                continue
            length, relative = block_length(leaf), self.relative.get(index, 0.0)
            for e, f in self._rows(expected, found, first, calls, index, length):
                if not fit_one_pass(e, f) and same_values(e, f):
                    into.elements += e.numel()
                elif not leaf.torch_dtype.is_floating_point:
                    return None
                else:
                    errors = errors_of(e, f, length)
                    value = (errors.values / errors.size).sqrt()
                    bounds = Bounds(errors.size, value, value * relative, 0 * value, relative)
                    if errors.finite and _are_within(self.rule, into, index, bounds, errors):
                        into.elements += e.numel()
                    elif not same_values(e, f):  # equal infinities
                        return None
        return into

    def settle_calibrated(self, expected: Arena, found: Arena, slot: int) -> Comparison | None:
        """The same of one slot that is calibrated: within what `compare` allows by the errors known of it."""
        into = Comparison()
        for index, leaf in enumerate(expected.layout.leaves):
            bounds = self._bounds(slot, index) if _is_inexact(leaf) else None
            length, start = self._scales[slot, index].length, 0
            for e, f in _parts(self._device, length, *(x.flat_leaf(slot, index) for x in (expected, found))):
                if bounds is None or not _settle(self.rule, into, index, start, length, bounds, e, f):
                    if not same_values(e, f):
                        return None
                    into.elements += e.numel()
                start += e.numel()
        return into

    def _bounds(self, slot: int, index: int) -> Bounds:
        scale = self._scales[slot, index]
        relative = max(self.relative.get(index, 0.0), scale.typical)
        absolute = _ROUNDING * self.usual.get(index, 0.0) if slot in self._moved else 0.0
        return scale.bounds(relative, absolute)

    def _rows(
        self, expected: Arena, found: Arena, first: int, calls: int, index: int, length: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Both of each slot in memory order, whole blocks at a time; small outputs of whole blocks many slots."""
        leaf, layout = expected.layout.leaves[index], expected.layout
        flats = [[x.flat_leaf(slot, index) for x in (expected, found)] for slot in range(first, first + calls)]
        most = PASS_ELEMENTS[self._device]
        if layout.slot_bytes == leaf.nbytes and fit_one_pass(*flats[0]):  # no slot is copied to lie beside the next
            most = _at_once(most, length)
        at_once = most // leaf.elements if leaf.elements % length == 0 else 0
        if at_once <= 1 or calls == 1:
            for pair in flats:
                yield from _parts(self._device, length, *pair)
        else:
            for start in range(first, first + calls, at_once):
                count = min(at_once, first + calls - start)
                yield tuple(x.rows(index, start, count).to(self._device).reshape(-1) for x in (expected, found))

    def least_error(self, slot: int, index: int, places: torch.Tensor) -> torch.Tensor:
        """What may be off at single elements of an output at least, float64.

        A running sum that comes near zero has the errors of what it was before: some roundings of its slice's size.
        """
        return _SUMMED * _ROUNDING * self._scales[slot, index].size_around(places)

    def compare(
        self, expected: Arena, found: Arena, slot: int, fp32: Arena, inputs: Sequence[torch.Tensor], *,
        row: int | None = None, closer: Mapping[int, Closer] | None = None, rule: Rule | None = None,
    ) -> Comparison:  # fmt: skip
        """Judges every element and every block of a slot; `inputs` tell where an index may be another.

        Elements in `closer` (by output) may be off by `element_factor` times the error that is known of them, too.
        `rule` in the place of its own.

        `expected` holds float64 (in its slot `row`) or the exact fp32 reference; where `fp32`, the reference in its own
        type, is not finite, the same must stand, or what float64 says.
        """
        into, rule = Comparison(), rule or self.rule
        self.outside = {}
        for index, leaf in enumerate(found.layout.leaves):
            scale = self._scales[slot, index]
            start = 0
            outside: list[torch.Tensor] = []
            flats = (
                expected.flat_leaf(slot if row is None else row, index),
                *(x.flat_leaf(slot, index) for x in (found, fp32)),
            )
            bounds = self._bounds(slot, index) if _is_inexact(leaf) else None
            closely = partial(_compare_floating, rule, into, leaf, index)
            tied: torch.Tensor | None = None
            for e, f, r in _parts(self._device, scale.length, *flats):
                if bounds is not None:
                    if not _settle(rule, into, index, start, scale.length, bounds, e, f):
                        known = (closer or {}).get(index)
                        step = _whole_blocks(CHUNK_ELEMENTS[self._device], scale.length)
                        for at in range(0, len(e), step):
                            part = slice(at, at + step)
                            outside.append(closely(start + at, scale.length, bounds, e[part], f[part], r[part], known))
                else:
                    wrong = _differing(scale, start, e, f)
                    if bool(wrong.any()):
                        tied = tied if tied is not None else tied_indices(
                            inputs, found.views(slot)[index], expected.views(slot if row is None else row)[index]
                        )  # fmt: skip
                        wrong &= ~tied[start : start + len(e)].to(e.device)
                    error = (f.double() - e.double()).abs()
                    _count(into, leaf, index, start, e, f, wrong, torch.where(wrong, error, 0.0))
                start += e.numel()
            if outside:
                self.outside[index] = torch.cat(outside)
        return into


def _settle(
    rule: Rule, into: Comparison, index: int, start: int, length: int, bounds: Bounds, e: torch.Tensor, f: torch.Tensor
) -> bool:
    """Whether every block is within by its largest difference and by its root mean square: in few passes."""
    if e.is_complex():
        return False
    errors = errors_of(e, f, length)
    blocks = slice(start // length, start // length + len(errors.size))
    part = replace(bounds, **{name: getattr(bounds, name)[blocks] for name in _BY_BLOCK})
    if not errors.finite or not _are_within(rule, into, index, part, errors):
        return False
    into.elements += e.numel()
    return True


def _are_within(rule: Rule, into: Comparison, index: int, bounds: Bounds, errors: Errors) -> bool:
    value, error = bounds.value, bounds.error
    spread = rule.element_factor * torch.maximum(error, bounds.relative * value)
    allowed = torch.maximum(spread, rule.rms_factor * bounds.largest_error) + rule.element_floor * value + _LEAST
    of_block = rule.rms_factor * error + rule.rms_floor * value + _LEAST
    most, largest = torch.stack(
        [torch.maximum(errors.largest / allowed, errors.rms / of_block).max(), errors.largest.max()]
    ).tolist()
    if not most < _SETTLED:  # NaN is not
        return False
    into.tolerance_used = max(into.tolerance_used, most)
    into.add_errors(index, largest, 0.0)
    return True


def _compare_floating(
    rule: Rule, into: Comparison, leaf: Leaf, index: int, start: int, length: int, bounds: Bounds,
    e: torch.Tensor, f: torch.Tensor, r: torch.Tensor, closer: Closer | None,
) -> torch.Tensor:  # fmt: skip
    """Returns where it is outside, in the order of memory."""
    relative = bounds.relative
    first, count = start // length, -(-e.numel() // length)
    blocks = slice(first, first + count)
    sizes, value, error, largest_error = (
        by_block[blocks] for by_block in (bounds.size, bounds.value, bounds.error, bounds.largest_error)
    )
    if e.is_complex():
        found, exact, fp32 = (torch.view_as_real(x).reshape(-1).double() for x in (f, e, r))
        length, sizes = 2 * length, 2 * sizes
    else:
        found, exact, fp32 = f.double(), e.double(), r.double()
    usual = torch.isfinite(fp32)
    exact = torch.where(usual & ~torch.isfinite(exact), fp32, exact)  # only float64 overflowed: a limit of its own
    same = (found == fp32) | (torch.isnan(found) & torch.isnan(fp32))
    finite = torch.isfinite(found) & torch.isfinite(exact)
    difference = torch.where(finite, (found - exact).abs(), 0.0)
    spread, size, burst = (
        by_block.repeat_interleave(length)[: len(found)] for by_block in (error, value, largest_error)
    )
    size = torch.maximum(exact.abs(), size)
    spread = torch.maximum(rule.element_factor * torch.maximum(spread, relative * size), rule.rms_factor * burst)
    allowed = spread + rule.element_floor * size + _LEAST
    within = finite & (difference <= allowed)
    wrong = torch.where(usual, ~within, ~(same | within))
    if closer is not None and not e.is_complex():  # what is within by itself says nothing about its block
        places, error_there = closer.between(start, start + e.numel())
        itself = places[finite[places] & (difference[places] <= rule.element_factor * error_there)]
        wrong[itself], difference[itself] = False, 0.0
    square = torch.zeros(count * length, dtype=torch.float64, device=e.device)
    square[: len(found)] = torch.where(usual & ~wrong, difference, 0.0).square()  # what is wrong counts already
    rms = (square.view(count, length).sum(dim=1) / sizes).sqrt()
    limit = rule.rms_factor * error + rule.rms_floor * value + _LEAST
    judged = torch.where(sizes >= LEAST_FOR_RMS, rms / limit, 0.0)
    bad = judged > 1
    if bool(bad.any()):
        far = difference > (_FAR * limit).repeat_interleave(length)[: len(found)]
        square[: len(found)].masked_fill_(far, 0.0)
        by_few = (square.view(count, length).sum(dim=1) / sizes).sqrt() <= limit
        # else each element of the block is a little off: all count that are off at all
        off, few = (x.repeat_interleave(length)[: len(found)] for x in (bad, by_few))
        wrong |= off & torch.where(few, far, difference > 0)
    into.tolerance_used = max(into.tolerance_used, float((difference / allowed).max()), float(judged.max()))
    if e.is_complex():
        wrong = wrong.view(-1, 2).any(dim=1)
        difference = difference.view(-1, 2).amax(dim=1)
    _count(into, leaf, index, start, e, f, wrong, difference)
    return start + wrong.nonzero().flatten()


def _differing(scale: Scale, start: int, e: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """Where integers differ that do not between variants of the reference."""
    wrong = e != f
    for places, values in scale.ambiguous:
        here = (places >= start) & (places < start + e.numel())
        at = places[here] - start
        wrong[at] &= f[at] != values[here]
    return wrong


def _count(
    into: Comparison, leaf: Leaf, index: int, start: int,
    e: torch.Tensor, f: torch.Tensor, wrong: torch.Tensor, difference: torch.Tensor,
) -> None:  # fmt: skip
    into.elements += e.numel()
    count = int(wrong.sum())
    into.mismatched += count
    largest = float(difference.max()) if difference.numel() else 0.0
    size = e.abs().double() if e.is_complex() else e.double().abs()
    ratio = torch.where(torch.isfinite(size) & (size > 0), difference / size, 0.0)
    into.add_errors(index, largest, float(ratio.max()) if ratio.numel() else 0.0)
    if count and into.first is None:
        at = int(wrong.nonzero()[0, 0])
        into.first = describe_element(leaf, index, start + at, e[at].item(), f[at].item())


def _parts(device: str, length: int, *flats: torch.Tensor, wide: bool = True) -> Iterator[tuple[torch.Tensor, ...]]:
    """Of leaves in memory order, whole blocks at a time; many where one pass takes what is expected and found (`wide`:
    unless it is to be of few)."""
    elements = PASS_ELEMENTS[device]
    if wide and len(flats) > 1 and fit_one_pass(*flats[:2]):
        elements = _at_once(elements, length)
    step = _whole_blocks(elements, length)
    for start in range(0, len(flats[0]), step):
        yield tuple(flat[start : start + step].to(device) for flat in flats)


def _at_once(least: int, length: int) -> int:
    return max(least, min(_WIDE, length * _WIDE_BLOCKS))


def _whole_blocks(elements: int, length: int) -> int:
    return max(1, elements // length) * length


def _is_inexact(leaf: Leaf) -> bool:
    return leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex
