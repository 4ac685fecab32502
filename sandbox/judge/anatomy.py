"""Where and how an output is wrong: a pure function of two tensors, for the feedback on a standard trial.

It decides nothing and finds no cause for certain: a place is exact (every element is looked at, in chunks), a fit or a
hypothesis rests on a sample of the wrong elements and of all, and says what share of that sample it explains. It must
never see a hidden trial: what it says is told to the agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import torch

from ..layout import Arena
from .compare import Comparison
from .guess import EXPLAINED, SAMPLE, Hypothesis, Pair, Sample, fit_line, guess_precision, list_hypotheses, rms

CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 23}
_EVERYWHERE = 0.98
_FLAT_WINDOW = 1 << 17
_LEAST_OF_A_CHUNK = 64
_BLOCKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4)


@dataclass(frozen=True)
class Tail:
    """Along `axis` the indices from `start` to the end (`size`) are wrong, and those before are not (or far less).

    block: the largest power of two of which `size` holds `start / block` whole ones: a last, incomplete tile. None:
        there is none.
    """

    axis: int
    start: int
    size: int
    block: int | None


@dataclass(frozen=True)
class Period:
    """Of every `length` indices along `axis` (None: of elements in order), `count` from `first` on are wrong."""

    axis: int | None
    length: int
    first: int
    count: int


@dataclass(frozen=True)
class Growth:
    """The mean absolute error rises along `axis`, about as the index to the `power`; its means at the two ends."""

    axis: int
    first_error: float
    last_error: float
    power: float


@dataclass(frozen=True)
class Anatomy:
    """What is wrong with one output.

    Attributes:
        shape: of the output; axes count from 0.
        elements, wrong: how many there are, and how many are outside of the tolerance.
        nonfinite, zero: of the wrong ones, those that are found not finite, or exactly zero.
        box: first and one past the last wrong index along each axis; None when nothing is wrong, or it spans all.
        box_share: share of the box that is wrong.
        tails, periods, growth: see there.
        flat_tail: everything from this element (in order) to the end is wrong, nothing before.
        factor, offset: found = factor * expected + offset over the wrong elements; None where that does not fit, or
            for a factor of one and an offset of zero.
        hypotheses: those that explain enough, the simplest first.
    """

    shape: tuple[int, ...]
    elements: int
    wrong: int
    nonfinite: int = 0
    zero: int = 0
    box: tuple[tuple[int, int], ...] | None = None
    box_share: float = 0.0
    tails: tuple[Tail, ...] = ()
    flat_tail: int | None = None
    periods: tuple[Period, ...] = ()
    growth: tuple[Growth, ...] = ()
    factor: float | None = None
    offset: float | None = None
    hypotheses: tuple[Hypothesis, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the judge sends it: JSON values alone, all numbers finite."""
        return asdict(self)


def dissect(
    expected: torch.Tensor, found: torch.Tensor, absolute: float | None = None, relative: float = 1e-3
) -> Anatomy:
    """The anatomy of `found` against `expected`, on whatever device they are.

    Args:
        expected, found: of the same shape, any strides and real or complex dtype (of complex numbers the parts are the
            last axis).
        absolute, relative: an element is wrong when |found - expected| > absolute + relative * |expected|, or when one
            of them is not finite and they are not the same. None: `relative` times the root mean square of expected.

    Time: a few passes over the two tensors; of 10**8 float32 elements some seconds on one core of a CPU.
    """
    if expected.shape != found.shape:
        raise ValueError(f"expected tensors of one shape; found {tuple(expected.shape)} and {tuple(found.shape)}")
    if expected.is_complex():
        expected, found = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(found.resolve_conj())
    shape = tuple(expected.shape)
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    pair = Pair(expected.squeeze(), found.squeeze())
    if pair.elements == 0:
        return Anatomy(shape, 0, 0)
    if absolute is None:
        absolute = relative * rms(pair.at(pair.spread())[0])
    scan = _scan(pair, absolute, relative)
    if scan.wrong == 0:
        return Anatomy(shape, pair.elements, 0, hypotheses=tuple(guess_precision(pair, *pair.at(pair.spread()))))
    sample = Sample(pair, torch.cat(scan.places), scan.nonfinite / scan.wrong, scan.zero / scan.wrong)
    factor, offset = fit_line(sample)
    places = _Places(pair, scan, absolute, relative)
    box = places.box()
    return Anatomy(
        shape=shape,
        elements=pair.elements,
        wrong=scan.wrong,
        nonfinite=scan.nonfinite,
        zero=scan.zero,
        box=None if box is None else _unsqueezed(box, shape, axes),
        box_share=places.share(box) if box is not None else scan.wrong / pair.elements,
        tails=tuple(Tail(axes[t.axis], t.start, t.size, t.block) for t in places.tails()),
        flat_tail=places.flat_tail(),
        periods=tuple(
            Period(axes[p.axis] if p.axis is not None else None, p.length, p.first, p.count) for p in places.periods()
        ),
        growth=tuple(Growth(axes[g.axis], g.first_error, g.last_error, g.power) for g in places.growth()),
        factor=factor,
        offset=offset,
        hypotheses=tuple(
            Hypothesis(h.name, round(h.explains, 4), tuple(axes[axis] for axis in h.axes), h.value)
            for h in list_hypotheses(sample, affine=factor is not None or offset is not None)
        ),
    )


def describe(
    comparison: Comparison,
    expected: Arena,
    found: Arena,
    rows: tuple[int, int],
    absolute: float | None,
    relative: float,
) -> dict[str, Any] | None:
    """The evidence `anatomy` of a standard trial that failed: of the output that holds its first mismatch.

    Args:
        comparison: the trial's.
        expected, found: the arenas that were compared, which may hold different dtypes.
        rows: the slot of each.
        absolute, relative: as of `dissect`; where the tolerance is calibrated None, and the protocol's relative one.

    Returns:
        None where nothing is wrong, or the device has no memory left for it.
    """
    if comparison.first is None:
        return None
    index = comparison.first["output"]
    try:
        pair = (expected.views(rows[0])[index], found.views(rows[1])[index])
        return dissect(*pair, absolute, relative).to_json()
    except torch.OutOfMemoryError:
        return None


def _unsqueezed(
    box: tuple[tuple[int, int], ...], shape: tuple[int, ...], axes: list[int]
) -> tuple[tuple[int, int], ...]:
    full = [(0, 1)] * len(shape)
    for axis, bounds in zip(axes, box, strict=True):
        full[axis] = bounds
    return tuple(full)


# -- where: every element ---------------------------------------------------------------------------------------------


@dataclass
class _Scan:
    """What one pass over all elements counts; profiles are by axis and index."""

    wrong: int = 0
    nonfinite: int = 0
    zero: int = 0
    first: int = 0
    last: int = 0
    counts: list[torch.Tensor] = field(default_factory=list)
    errors: list[torch.Tensor] = field(default_factory=list)
    places: list[torch.Tensor] = field(default_factory=list)
    """Positions of some wrong elements, from all over."""


def _scan(pair: Pair, absolute: float, relative: float) -> _Scan:
    device = pair.expected.device
    scan = _Scan(
        counts=[torch.zeros(size, dtype=torch.float64, device=device) for size in pair.shape],
        errors=[torch.zeros(size, dtype=torch.float64, device=device) for size in pair.shape],
    )
    limit = CHUNK_ELEMENTS["cpu" if device.type == "cpu" else "cuda"]
    quota = max(_LEAST_OF_A_CHUNK, SAMPLE * limit // max(pair.elements, limit))
    for block in _blocks(pair.shape, limit):
        e, f = pair.expected[block], pair.found[block]
        bad, error, values = _judge(e, f, absolute, relative)
        count = int(bad.sum())
        if count == 0:
            continue
        scan.wrong += count
        scan.nonfinite += int((bad & ~torch.isfinite(values)).sum())
        scan.zero += int((bad & (values == 0)).sum())
        _add_profiles(scan, block, bad, error)
        flat = bad.reshape(-1).nonzero().flatten()
        chosen = flat[:: max(1, len(flat) // quota)]
        ends = torch.stack([flat[0], flat[-1]])
        here = torch.cat([ends, chosen]) + _start(block, pair.shape)
        scan.first = int(here[0]) if not scan.places else scan.first
        scan.last = int(here[1])
        scan.places.append(here[2:])
    return scan


def _blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most `limit` elements (one index along the split axis at least) that tile the shape in order."""
    if not shape:
        yield ()
        return
    inner = 1
    split = len(shape) - 1
    while split > 0 and inner * shape[split] <= limit:
        inner *= shape[split]
        split -= 1
    step = max(1, limit // inner)
    for outer in product(*(range(size) for size in shape[:split])):
        for first in range(0, shape[split], step):
            whole = [slice(None)] * (len(shape) - split - 1)
            yield (*(slice(i, i + 1) for i in outer), slice(first, first + step), *whole)


def _start(block: tuple[slice, ...], shape: tuple[int, ...]) -> int:
    """Position of a block's first element; the others follow it without a gap."""
    position = 0
    for part, size in zip(block, shape, strict=True):
        position = position * size + (part.start or 0)
    return position


def _judge(
    e: torch.Tensor, f: torch.Tensor, absolute: float, relative: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which elements are wrong, the absolute error of the finite wrong ones (zero elsewhere), and what was found."""
    narrow = e.dtype in (torch.float32, torch.float16, torch.bfloat16) and f.dtype == e.dtype
    kind = torch.float32 if narrow else torch.float64
    x, y = e.to(kind), f.to(kind)
    error = (y - x).abs_()
    bad = error > absolute + relative * x.abs()
    finite = torch.isfinite(error)
    if not bool(finite.all()):
        same = (x == y) | (torch.isnan(x) & torch.isnan(y))
        bad = torch.where(finite, bad, ~same)
        error = torch.where(finite, error, 0.0)
    return bad, error.mul_(bad), y


def _add_profiles(scan: _Scan, block: tuple[slice, ...], bad: torch.Tensor, error: torch.Tensor) -> None:
    for values, profiles in ((bad, scan.counts), (error, scan.errors)):
        for axis, profile in enumerate(profiles):
            others = [other for other in range(bad.dim()) if other != axis]
            kind = torch.float32 if values.dtype is not torch.float64 else torch.float64
            part = values.sum(dim=others, dtype=kind) if others else values.to(kind)
            profile[block[axis]] += part


class _Places:
    """Where the wrong elements lie, from the scan's profiles."""

    def __init__(self, pair: Pair, scan: _Scan, absolute: float, relative: float) -> None:
        self._pair, self._scan = pair, scan
        self._tolerance = (absolute, relative)
        self._counts = [counts.cpu() for counts in scan.counts]
        self._share = scan.wrong / pair.elements

    def box(self) -> tuple[tuple[int, int], ...] | None:
        bounds = []
        for counts in self._counts:
            wrong = counts.nonzero().flatten()
            bounds.append((int(wrong[0]), int(wrong[-1]) + 1))
        whole = all((low, high) == (0, size) for (low, high), size in zip(bounds, self._pair.shape, strict=True))
        return None if whole else tuple(bounds)

    def share(self, box: tuple[tuple[int, int], ...]) -> float:
        return self._scan.wrong / math.prod(high - low for low, high in box)

    def tails(self) -> list[Tail]:
        """Axes along which a last stretch is far worse than all before it."""
        found = []
        for axis, counts in enumerate(self._counts):
            size = len(counts)
            high = counts > counts.max() / 2
            start = int(high.nonzero()[0])
            length = size - start
            if start == 0 or length > _EVERYWHERE * size or float(high[start:].double().mean()) < EXPLAINED:
                continue
            found.append(Tail(axis, start, size, _incomplete_block(start, size)))
        return found

    def flat_tail(self) -> int | None:
        """Where no axis tells it: the elements from one on to the end."""
        first, elements = self._scan.first, self._pair.elements
        if first == 0 or self._share >= _EVERYWHERE or self._scan.last < elements - 1 - elements // 1000:
            return None
        return first if self._scan.wrong >= EXPLAINED * (elements - first) else None

    def periods(self) -> list[Period]:
        if self._share >= _EVERYWHERE:
            return []
        found = []
        for axis, counts in enumerate(self._counts):
            period = _period(counts > counts.max() / 2)
            if period is not None:
                found.append(Period(axis, *period))
        flat = self._flat_period()
        if flat is None or any((p.axis, p.length) == (len(self._pair.shape) - 1, flat.length) for p in found):
            return found
        return [flat]

    def _flat_period(self) -> Period | None:
        """Of elements in order, where it is no period of whole rows: that one is told by its axis, or as a box."""
        if len(self._pair.shape) < 2:
            return None
        start = self._scan.first
        window = torch.arange(start, min(start + _FLAT_WINDOW, self._pair.elements), device=self._pair.expected.device)
        e, f = self._pair.at(window)
        period = _period(_judge(e, f, *self._tolerance)[0].cpu())
        if period is None or period[0] % self._pair.shape[-1] == 0:
            return None
        length, first, count = period
        return Period(None, length, (start + first) % length, count)

    def growth(self) -> list[Growth]:
        """Axes along which the mean error of the wrong elements rises from first to last, at least fourfold."""
        found = []
        for axis, (sums, counts) in enumerate(zip(self._scan.errors, self._counts, strict=True)):
            size = len(counts)
            if size < 16:
                continue
            bins = torch.arange(size) * 16 // size
            total = torch.zeros(16, dtype=torch.float64).index_add_(0, bins, sums.cpu())
            held = torch.zeros(16, dtype=torch.float64).index_add_(0, bins, counts)
            if bool((held == 0).any() or not torch.isfinite(total).all()):
                continue
            mean = total / held
            rising = bool((mean[1:] >= 0.9 * mean[:-1]).all())
            if not rising or mean[0] <= 0 or mean[-1] < 4 * mean[0]:
                continue
            places = torch.log(torch.arange(16, dtype=torch.float64) + 0.5)
            logs = torch.log(mean)
            slope = ((places - places.mean()) * (logs - logs.mean())).sum() / (places - places.mean()).square().sum()
            found.append(Growth(axis, float(mean[0]), float(mean[-1]), round(float(slope), 2)))
        return found


def _incomplete_block(start: int, size: int) -> int | None:
    return next((b for b in _BLOCKS if size % b and start == size // b * b), None)


def _period(high: torch.Tensor) -> tuple[int, int, int] | None:
    """Length, first wrong remainder and count of a 0/1 sequence that repeats, from where its runs of ones begin."""
    edges = torch.diff(high.int(), prepend=torch.zeros(1, dtype=torch.int32))
    starts = (edges == 1).nonzero().flatten()
    ends = (edges == -1).nonzero().flatten()
    if len(starts) and starts[0] == 0:  # a run that may have begun before
        starts = starts[1:]
        ends = ends[1:]
    if len(starts) < 3:
        return None
    gaps = torch.diff(starts)
    length = int(gaps.mode().values)
    regular = float((gaps == length).double().mean())
    widths = ends[: len(starts)] - starts[: len(ends)]
    if regular < EXPLAINED or len(widths) < 2:
        return None
    count = int(widths.mode().values)
    if float((widths == count).double().mean()) < EXPLAINED:
        return None
    return length, int(starts[0]) % length, count
