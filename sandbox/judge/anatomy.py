"""Where and how an output is wrong: a pure function of two tensors, for the feedback on a standard trial.

It decides nothing and finds no cause for certain: a place is exact (every element is looked at, in chunks), a fit or a
hypothesis rests on a sample of the wrong elements and of all, and says what share of that sample it explains. It must
never see a hidden trial: what it says is told to the agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, permutations, product
from typing import Any

import torch

from ..layout import Arena
from .compare import Comparison

CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 23}
_SAMPLE = 4096
"""Wrong elements, and elements at large, that fits and hypotheses are tried on."""
_LINES, _LINE = 64, 4096
"""Of lines along an axis: how many, and how much of each."""
_MOST_PERMUTED_AXES = 4
_EXPLAINED = 0.95
"""Of the sample: below that a fit is not told."""
_EVERYWHERE = 0.98
_FLAT_WINDOW = 1 << 17
_SHIFTS = (1, 2, 4, 8, 16, 32, 64, 128)
_BLOCKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4)
_CLOSE_RELATIVE, _CLOSE_RMS = 5e-3, 2e-3
"""A fit holds for an element within these shares of its value and of the sample's root mean square: wide enough for
TF32 and bf16 around it, and far below any fault worth a word."""


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
class Hypothesis:
    """A simple fault that explains the share `explains` of the sample. `value`: see the name.

    name:
        "not-finite": the wrong elements are NaN or infinite;
        "not-written": they are zero;
        "constant": they all hold `value`;
        "not-clamped": negative where the expected value is zero (an activation or a mask is missing);
        "absolute": the expected value's size without its sign; "negated": its opposite;
        "permuted": found holds the expected values in the order of `axes` (two of them swapped: transposed);
        "reversed": along `axes`; "shifted": found[i] is expected[i + value] along `axes`;
        "repeated": found is the same at every index along `axes`, expected is not;
        "term-by-index": found - expected depends on the index along `axes` alone (a bias is missing or wrong);
        "factor-by-index": found / expected does (a scale is missing or wrong);
        "term-on-wrong-axis": found - expected is one term along the first of `axes` and one along the second;
        "normalised-on-wrong-axis": expected sums to one (or has mean 0 and variance 1) along the first of `axes`,
            found along the second;
        "partial-sum": found behaves like `value` of the terms of a sum (not accumulated, or some terms left out);
        "surplus-sum": like expected with unrelated terms added (an accumulator not cleared, terms read twice);
        "low-precision": as after rounding, with errors of `value` of the root mean square;
        "stored-in-half", "stored-in-bfloat16": every value found is one of that type.
    """

    name: str
    explains: float
    axes: tuple[int, ...] = ()
    value: float | None = None


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
    pair = _Pair(expected.squeeze(), found.squeeze())
    if pair.elements == 0:
        return Anatomy(shape, 0, 0)
    if absolute is None:
        absolute = relative * _rms(pair.at(pair.spread())[0])
    scan = _scan(pair, absolute, relative)
    if scan.wrong == 0:
        return Anatomy(shape, pair.elements, 0, hypotheses=tuple(_precision(pair, *pair.at(pair.spread()))))
    sample = _Sample(pair, scan, absolute, relative)
    factor, offset = _line(sample)
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
            for h in _hypotheses(sample, affine=factor is not None or offset is not None)
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


# -- the two tensors --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """Expected and found without axes of size one (a single element has no axis at all)."""

    expected: torch.Tensor
    found: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.expected.shape)

    @property
    def elements(self) -> int:
        return self.expected.numel()

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both in float64 at positions in order (the last axis fastest)."""
        index = self.index(positions)
        return _value(self.expected, index), _value(self.found, index)

    def index(self, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _unravel(positions, self.shape)

    def spread(self, count: int = _SAMPLE) -> torch.Tensor:
        """Positions all over, the same at every call; all of them where there are few."""
        device = self.expected.device
        if self.elements <= count:
            return torch.arange(self.elements, device=device)
        # Multiples of the golden section fill an interval evenly, whatever strides a fault may have.
        fractions = torch.arange(1, count + 1, dtype=torch.float64, device=device) * ((math.sqrt(5) - 1) / 2) % 1.0
        return (fractions * self.elements).long().clamp_(max=self.elements - 1)


def _value(tensor: torch.Tensor, index: tuple[torch.Tensor, ...]) -> torch.Tensor:
    values = tensor[index] if index else tensor.reshape(1)
    return values.double()


def _unravel(positions: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    index = []
    for size in reversed(shape):
        index.append(positions % size)
        positions = positions // size
    return tuple(reversed(index))


def _ravel(index: Sequence[torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
    position = torch.zeros_like(index[0])
    for part, size in zip(index, shape, strict=True):
        position = position * size + part
    return position


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


def _scan(pair: _Pair, absolute: float, relative: float) -> _Scan:
    device = pair.expected.device
    scan = _Scan(
        counts=[torch.zeros(size, dtype=torch.float64, device=device) for size in pair.shape],
        errors=[torch.zeros(size, dtype=torch.float64, device=device) for size in pair.shape],
    )
    limit = CHUNK_ELEMENTS["cpu" if device.type == "cpu" else "cuda"]
    quota = max(_LINES, _SAMPLE * limit // max(pair.elements, limit))
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

    def __init__(self, pair: _Pair, scan: _Scan, absolute: float, relative: float) -> None:
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
            if start == 0 or length > _EVERYWHERE * size or float(high[start:].double().mean()) < _EXPLAINED:
                continue
            found.append(Tail(axis, start, size, _incomplete_block(start, size)))
        return found

    def flat_tail(self) -> int | None:
        """Where no axis tells it: the elements from one on to the end."""
        first, elements = self._scan.first, self._pair.elements
        if first == 0 or self._share >= _EVERYWHERE or self._scan.last < elements - 1 - elements // 1000:
            return None
        return first if self._scan.wrong >= _EXPLAINED * (elements - first) else None

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
    if regular < _EXPLAINED or len(widths) < 2:
        return None
    count = int(widths.mode().values)
    if float((widths == count).double().mean()) < _EXPLAINED:
        return None
    return length, int(starts[0]) % length, count


# -- how: fits and hypotheses on a sample -----------------------------------------------------------------------------


class _Sample:
    """Values at some wrong positions (`e`, `f` at `wrong`) and at positions all over (`all_e`, `all_f` at `spread`)."""

    def __init__(self, pair: _Pair, scan: _Scan, absolute: float, relative: float) -> None:
        self.pair, self.scan = pair, scan
        places = torch.cat(scan.places)
        self.wrong = places[:: max(1, len(places) // _SAMPLE)]
        self.spread = pair.spread()
        self.e, self.f = pair.at(self.wrong)
        self.all_e, self.all_f = pair.at(self.spread)
        self.absolute, self.relative = absolute, relative
        self.rms = _rms(torch.cat([self.e, self.f]))

    @property
    def is_global(self) -> bool:
        """So much is off that the fault is one of the whole, not of a place.

        By nearness and not by the tolerance, which a small output (a softmax) may meet nearly everywhere.
        """
        return _share(_close(self.all_f, self.all_e)) < 0.7

    def explains(self, guess: torch.Tensor, guess_all: torch.Tensor | None = None) -> float:
        """The share of the wrong elements that `guess` meets; at most that of all elements, where there is a guess."""
        share = _share(_close(self.f, guess))
        return share if guess_all is None else min(share, _share(_close(self.all_f, guess_all)))


def _close(f: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:
    return (f - guess).abs() <= _CLOSE_RELATIVE * guess.abs() + _CLOSE_RMS * _rms(guess)


def _share(flags: torch.Tensor) -> float:
    return float(flags.double().mean()) if flags.numel() else 0.0


def _rms(values: torch.Tensor) -> float:
    """Root mean square of the finite ones, through their largest, since a square may overflow."""
    finite = values[torch.isfinite(values)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return largest * float((finite / largest).square().mean().sqrt()) if largest else 0.0


def _line(sample: _Sample) -> tuple[float | None, float | None]:
    """Factor and offset of found = factor * expected + offset over the wrong elements; the simplest that fits."""
    finite = torch.isfinite(sample.e) & torch.isfinite(sample.f)
    e, f = sample.e[finite], sample.f[finite]
    if len(e) < max(3, 0.9 * len(sample.e)) or _rms(f) == 0 or float(e.std()) <= 1e-6 * _rms(e):
        return None, None
    used = e.abs() > 0.1 * _rms(e)
    factor = float((f[used] / e[used]).median())
    if _fits(e, f, factor * e):
        return _rounded(factor), None
    offset = float((f - e).median())
    if _fits(e, f, e + offset):
        return None, _rounded(offset)
    slope = float(((e - e.mean()) * (f - f.mean())).sum() / (e - e.mean()).square().sum())
    offset = float((f - slope * e).median())
    if abs(slope) > 1e-3 and _fits(e, f, slope * e + offset):
        return _rounded(slope), _rounded(offset)
    return None, None


def _fits(e: torch.Tensor, f: torch.Tensor, guess: torch.Tensor) -> bool:
    """Whether the guess meets nearly all, and is far nearer than expected itself (which may be near, too)."""
    return _share(_close(f, guess)) >= _EXPLAINED and _rms(f - guess) <= 0.3 * _rms(f - e)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _hypotheses(sample: _Sample, *, affine: bool) -> list[Hypothesis]:
    """The simplest kind that explains the sample, each kind tried only where those before it found nothing."""
    for kind in (_empty, _signs, _moved):
        if found := kind(sample):
            return found
    if sample.is_global and not affine:
        for kind in (_by_index, _normalised, _sums):
            if found := kind(sample):
                return found
    return [] if affine else list(_precision(sample.pair, sample.all_e, sample.all_f))


def _empty(sample: _Sample) -> list[Hypothesis]:
    scan, f = sample.scan, sample.f
    if scan.nonfinite >= _EXPLAINED * scan.wrong:
        return [Hypothesis("not-finite", scan.nonfinite / scan.wrong)]
    if scan.zero >= _EXPLAINED * scan.wrong:
        return [Hypothesis("not-written", scan.zero / scan.wrong)]
    value = float(f.median())
    same = _share(f == value)
    if len(f) > 2 and same >= _EXPLAINED:
        return [Hypothesis("constant", same, value=_rounded(value))]
    return []


def _signs(sample: _Sample) -> list[Hypothesis]:
    e, f = sample.e, sample.f
    unclamped = _share((e == 0) & (f < 0))
    if unclamped >= _EXPLAINED:
        return [Hypothesis("not-clamped", unclamped)]
    found = []
    for name, guess, all_guess in (("negated", -e, -sample.all_e), ("absolute", e.abs(), sample.all_e.abs())):
        share = sample.explains(guess, all_guess if sample.is_global else None)
        if share >= _EXPLAINED:
            found.append(Hypothesis(name, share))
    return found[:1]


def _moved(sample: _Sample) -> list[Hypothesis]:
    """The right values in the wrong places: permuted, reversed, shifted, or one line everywhere."""
    shape = sample.pair.shape
    if not shape or float(sample.all_e.std()) == 0:
        return []
    found = [*_permuted(sample), *_reversed(sample), *_repeated(sample)]
    return found[:2] or list(_shifted(sample))[:1]


def _guess(sample: _Sample, positions: torch.Tensor, all_positions: torch.Tensor) -> float:
    """How much is explained by the expected values of other positions."""
    return sample.explains(sample.pair.at(positions)[0], sample.pair.at(all_positions)[0])


def _permuted(sample: _Sample) -> Iterator[Hypothesis]:
    shape = sample.pair.shape
    if len(shape) > _MOST_PERMUTED_AXES or not sample.is_global:
        return
    for order in permutations(range(len(shape))):
        if order == tuple(range(len(shape))):
            continue
        sizes = [shape[axis] for axis in order]

        def source(positions: torch.Tensor, order: tuple[int, ...] = order, sizes: list[int] = sizes) -> torch.Tensor:
            index = _unravel(positions, sizes)
            return _ravel([index[order.index(axis)] for axis in range(len(shape))], shape)

        share = _guess(sample, source(sample.wrong), source(sample.spread))
        if share >= _EXPLAINED:
            yield Hypothesis("permuted", share, axes=order)


def _reversed(sample: _Sample) -> Iterator[Hypothesis]:
    for axis, size in enumerate(sample.pair.shape):
        moved = [_along(sample, positions, axis, lambda i, n=size: n - 1 - i) for positions in _both(sample)]
        share = _guess(sample, *moved)
        if share >= _EXPLAINED:
            yield Hypothesis("reversed", share, axes=(axis,))


def _repeated(sample: _Sample) -> Iterator[Hypothesis]:
    for axis in range(len(sample.pair.shape)):
        moved = _along(sample, sample.spread, axis, torch.zeros_like)
        e, f = sample.pair.at(moved)
        if _share(_close(sample.all_f, f)) >= _EXPLAINED > _share(_close(sample.all_e, e)):
            yield Hypothesis("repeated", _share(_close(sample.all_f, f)), axes=(axis,))


def _shifted(sample: _Sample) -> Iterator[Hypothesis]:
    """Positions whose source lies outside say nothing."""
    for axis, size in enumerate(sample.pair.shape):
        for shift in (sign * step for step in _SHIFTS for sign in (1, -1) if step < size):
            index = sample.pair.index(sample.wrong)[axis] + shift
            inside = (index >= 0) & (index < size)
            if int(inside.sum()) < max(3, len(index) // 4):
                continue
            moved = _along(sample, sample.wrong[inside], axis, lambda i, s=shift: i + s)
            share = _share(_close(sample.f[inside], sample.pair.at(moved)[0]))
            if share >= _EXPLAINED:
                yield Hypothesis("shifted", share, axes=(axis,), value=float(shift))


def _both(sample: _Sample) -> tuple[torch.Tensor, torch.Tensor]:
    return sample.wrong, sample.spread


def _along(sample: _Sample, positions: torch.Tensor, axis: int, move: Any) -> torch.Tensor:
    """The positions with their index along one axis moved."""
    index = list(sample.pair.index(positions))
    index[axis] = move(index[axis])
    return _ravel(index, sample.pair.shape)


def _by_index(sample: _Sample) -> list[Hypothesis]:
    """What is missing depends on an index alone: a table of 32 indices along an axis by 64 places elsewhere."""
    shape = sample.pair.shape
    if len(shape) < 2:
        return []
    found: list[Hypothesis] = []
    for axis in range(len(shape)):
        e, f = _table(sample, axis)
        if not bool(torch.isfinite(f).all() and torch.isfinite(e).all()):
            continue
        for name, values, spread in (
            ("term-by-index", f - e, _CLOSE_RMS * _rms(e) + 1e-2 * _rms(f - e)),
            ("factor-by-index", torch.where(e.abs() > 0.05 * _rms(e), f / e, torch.nan), 1e-2),
        ):
            typical = values.nanmedian(dim=1, keepdim=True).values
            if not bool(torch.isfinite(typical).all()):
                continue
            off = (values - typical).abs()
            share = _share((off <= spread)[~torch.isnan(off)])
            differs = float(typical.max() - typical.min()) > 5 * spread
            if share >= _EXPLAINED and differs:
                found.append(Hypothesis(name, share, axes=(axis,)))
    return sorted(found, key=lambda h: -h.explains)[:1] or list(_crossed(sample))[:1]


def _table(sample: _Sample, axis: int, others: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Values at some indices along `axis` (rows) and some places along the others (columns)."""
    size = sample.pair.shape[axis]
    chosen = torch.linspace(0, size - 1, min(size, 32), device=sample.wrong.device).round().long()
    columns = sample.spread[:: max(1, len(sample.spread) // others)][:others]
    positions = torch.stack([_along(sample, columns, axis, lambda i, c=c: torch.full_like(i, int(c))) for c in chosen])
    e, f = sample.pair.at(positions.flatten())
    return e.view(positions.shape), f.view(positions.shape)


def _crossed(sample: _Sample) -> Iterator[Hypothesis]:
    """A term added along the wrong axis: the difference is one term by row less one by column."""
    shape = sample.pair.shape
    device = sample.wrong.device
    for a, b in combinations(range(len(shape)), 2):
        rows, columns = (
            torch.linspace(0, shape[axis] - 1, min(shape[axis], 24), device=device).round().long() for axis in (a, b)
        )
        grid = [torch.zeros(len(rows), len(columns), dtype=torch.long, device=device) for _ in shape]
        grid[a] += rows[:, None]
        grid[b] += columns[None, :]
        e, f = (v.view(len(rows), len(columns)) for v in sample.pair.at(_ravel([g.flatten() for g in grid], shape)))
        d = f - e
        rest = d - d.mean(dim=1, keepdim=True) - d.mean(dim=0, keepdim=True) + d.mean()
        spread = _CLOSE_RMS * _rms(e) + 1e-2 * _rms(d)
        share = _share(rest.abs() <= spread)
        varied = min(float(d.mean(dim=1).std()), float(d.mean(dim=0).std())) > 5 * spread
        if share >= _EXPLAINED and varied:
            yield Hypothesis("term-on-wrong-axis", share, axes=(a, b))


def _normalised(sample: _Sample) -> list[Hypothesis]:
    """Lines of expected sum to one (softmax), or have mean 0 and variance 1, along one axis, of found along another."""
    lines = [_lines(sample.pair, axis) for axis in range(len(sample.pair.shape))]
    for is_normal in (_sums_to_one, _is_standard):
        of_expected = [is_normal(e) for e, _ in lines]
        of_found = [is_normal(f) for _, f in lines]
        for right, wrong in permutations(range(len(lines)), 2):
            if of_expected[right] and not of_found[right] and of_found[wrong] and not of_expected[wrong]:
                return [Hypothesis("normalised-on-wrong-axis", 1.0, axes=(right, wrong))]
    return []


def _lines(pair: _Pair, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Some whole lines along an axis, none where they are longer than one looks at."""
    size = pair.shape[axis]
    starts = pair.spread(_LINES)
    index = list(pair.index(starts))
    along = torch.arange(size if size <= 16 * _LINE else 0, device=starts.device)
    grid = [part[:, None].expand(-1, len(along)).reshape(-1) for part in index]
    grid[axis] = along.repeat(len(starts))
    e, f = _value(pair.expected, tuple(grid)), _value(pair.found, tuple(grid))
    return e.view(len(starts), -1), f.view(len(starts), -1)


def _sums_to_one(lines: torch.Tensor) -> bool:
    return lines.shape[1] > 1 and bool(((lines.sum(dim=1) - 1).abs() < 5e-3).all()) and bool((lines >= 0).all())


def _is_standard(lines: torch.Tensor) -> bool:
    if lines.shape[1] < 8:
        return False
    return bool((lines.mean(dim=1).abs() < 1e-2).all()) and bool(
        ((lines.var(dim=1, correction=0) - 1).abs() < 2e-2).all()
    )


def _sums(sample: _Sample) -> list[Hypothesis]:
    """Part of a sum, or more than it: by how found varies with expected.

    When expected is a sum of independent terms and found holds some of them, what is left out is uncorrelated with
    what is there: cov(f, e) = var(f), and var(f) / var(e) is the share of the terms. When found holds all of them and
    others beside, cov(f, e) = var(e).
    """
    e, f = sample.all_e, sample.all_f
    if len(e) < 256 or not bool(torch.isfinite(e).all() and torch.isfinite(f).all()):
        return []
    e, f = e - e.mean(), f - f.mean()
    var_e, var_f, both = (float(v.mean()) for v in (e * e, f * f, e * f))
    if min(var_e, var_f) <= 0:
        return []
    correlation = both / math.sqrt(var_e * var_f)
    uncertain = 4 * math.sqrt((1 - min(correlation**2, 1)) / len(e))
    if not 0.1 < correlation < 0.997:
        return []
    share = var_f / var_e
    if share < 0.98 and abs(both / var_f - 1) <= 0.05 + uncertain / math.sqrt(share):
        return [Hypothesis("partial-sum", round(correlation**2 / share, 4), value=_rounded(share))]
    if share > 1.02 and abs(both / var_e - 1) <= 0.05 + uncertain * math.sqrt(share):
        return [Hypothesis("surplus-sum", round(min(1.0, correlation**2 * share), 4), value=_rounded(share))]
    return []


def _precision(pair: _Pair, e: torch.Tensor, f: torch.Tensor) -> Iterator[Hypothesis]:
    """Errors as rounding makes them: small beside the output, on either side, all over."""
    finite = torch.isfinite(e) & torch.isfinite(f)
    e, f = e[finite], f[finite]
    rms = _rms(e)
    if len(e) < 32 or rms == 0:
        return
    error = f - e
    size = _rms(error) / rms
    unbiased = abs(float(error.mean())) < 0.3 * _rms(error)
    heavy = float(error.abs().max()) > 30 * _rms(error)
    if not 3e-5 <= size <= 3e-2 or not unbiased or heavy or _share(error != 0) < 0.5:
        return
    if pair.found.dtype in (torch.float32, torch.float64):
        for name, dtype in (("stored-in-bfloat16", torch.bfloat16), ("stored-in-half", torch.float16)):
            share = _share(f.to(dtype).double() == f)
            if share >= _EXPLAINED:
                yield Hypothesis(name, share, value=_rounded(size))
                return
    yield Hypothesis("low-precision", 1.0, value=_rounded(size))
