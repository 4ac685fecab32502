"""How a wrong output may have come about: fits and simple hypotheses, tried on a sample of two tensors.

Nothing here is certain: each hypothesis says what share of the sample it explains. See `anatomy`, which asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import torch

SAMPLE = 4096
"""Wrong elements, and elements at large, that fits and hypotheses are tried on."""
EXPLAINED = 0.95
"""Of the sample: below that a fit is not told."""
_LINES, _LONGEST_LINE = 64, 1 << 16
"""Of whole lines along an axis: how many, and up to which length."""
_MOST_PERMUTED_AXES = 4
_SHIFTS = (1, 2, 4, 8, 16, 32, 64, 128)
_CLOSE_RELATIVE, _CLOSE_RMS = 5e-3, 2e-3
"""A fit holds for an element within these shares of its value and of the sample's root mean square: wide enough for
TF32 and bf16 around it, and far below any fault worth a word."""


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
class Pair:
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

    def spread(self, count: int = SAMPLE) -> torch.Tensor:
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


class Sample:
    """Values at some wrong positions (`e`, `f` at `wrong`) and at positions all over (`all_e`, `all_f` at `spread`).

    `places` are the wrong positions; `nonfinite` and `zero` the shares of all wrong elements that are found so.
    """

    def __init__(self, pair: Pair, places: torch.Tensor, nonfinite: float, zero: float) -> None:
        self.pair, self.nonfinite, self.zero = pair, nonfinite, zero
        self.wrong = places[:: max(1, len(places) // SAMPLE)]
        self.spread = pair.spread()
        self.e, self.f = pair.at(self.wrong)
        self.all_e, self.all_f = pair.at(self.spread)

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
    return (f - guess).abs() <= _CLOSE_RELATIVE * guess.abs() + _CLOSE_RMS * rms(guess)


def _share(flags: torch.Tensor) -> float:
    return float(flags.double().mean()) if flags.numel() else 0.0


def rms(values: torch.Tensor) -> float:
    """Root mean square of the finite ones, through their largest, since a square may overflow."""
    finite = values[torch.isfinite(values)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return largest * float((finite / largest).square().mean().sqrt()) if largest else 0.0


def fit_line(sample: Sample) -> tuple[float | None, float | None]:
    """Factor and offset of found = factor * expected + offset over the wrong elements; the simplest that fits."""
    finite = torch.isfinite(sample.e) & torch.isfinite(sample.f)
    e, f = sample.e[finite], sample.f[finite]
    if len(e) < max(3, 0.9 * len(sample.e)) or rms(f) == 0 or float(e.std()) <= 1e-6 * rms(e):
        return None, None
    used = e.abs() > 0.1 * rms(e)
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
    return _share(_close(f, guess)) >= EXPLAINED and rms(f - guess) <= 0.3 * rms(f - e)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def list_hypotheses(sample: Sample, *, affine: bool) -> list[Hypothesis]:
    """The simplest kind that explains the sample, each kind tried only where those before it found nothing."""
    for kind in (_empty, _signs, _moved):
        if found := kind(sample):
            return found
    if sample.is_global and not affine:
        for kind in (_by_index, _normalised, _sums):
            if found := kind(sample):
                return found
    return [] if affine else list(guess_precision(sample.pair, sample.all_e, sample.all_f))


def _empty(sample: Sample) -> list[Hypothesis]:
    f = sample.f
    if sample.nonfinite >= EXPLAINED:
        return [Hypothesis("not-finite", sample.nonfinite)]
    if sample.zero >= EXPLAINED:
        return [Hypothesis("not-written", sample.zero)]
    value = float(f.median())
    same = _share(f == value)
    if len(f) > 2 and same >= EXPLAINED:
        return [Hypothesis("constant", same, value=_rounded(value))]
    return []


def _signs(sample: Sample) -> list[Hypothesis]:
    e, f = sample.e, sample.f
    unclamped = _share((e == 0) & (f < 0))
    if unclamped >= EXPLAINED:
        return [Hypothesis("not-clamped", unclamped)]
    found = []
    for name, guess, all_guess in (("negated", -e, -sample.all_e), ("absolute", e.abs(), sample.all_e.abs())):
        share = sample.explains(guess, all_guess if sample.is_global else None)
        if share >= EXPLAINED:
            found.append(Hypothesis(name, share))
    return found[:1]


def _moved(sample: Sample) -> list[Hypothesis]:
    """The right values in the wrong places: permuted, reversed, shifted, or one line everywhere."""
    shape = sample.pair.shape
    if not shape or float(sample.all_e.std()) == 0:
        return []
    found = [*_permuted(sample), *_reversed(sample), *_repeated(sample)]
    return found[:2] or list(_shifted(sample))[:1]


def _guess(sample: Sample, positions: torch.Tensor, all_positions: torch.Tensor) -> float:
    """How much is explained by the expected values of other positions."""
    return sample.explains(sample.pair.at(positions)[0], sample.pair.at(all_positions)[0])


def _permuted(sample: Sample) -> Iterator[Hypothesis]:
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
        if share >= EXPLAINED:
            yield Hypothesis("permuted", share, axes=order)


def _reversed(sample: Sample) -> Iterator[Hypothesis]:
    for axis, size in enumerate(sample.pair.shape):
        moved = [_along(sample, positions, axis, lambda i, n=size: n - 1 - i) for positions in _both(sample)]
        share = _guess(sample, *moved)
        if share >= EXPLAINED:
            yield Hypothesis("reversed", share, axes=(axis,))


def _repeated(sample: Sample) -> Iterator[Hypothesis]:
    for axis in range(len(sample.pair.shape)):
        moved = _along(sample, sample.spread, axis, torch.zeros_like)
        e, f = sample.pair.at(moved)
        if _share(_close(sample.all_f, f)) >= EXPLAINED > _share(_close(sample.all_e, e)):
            yield Hypothesis("repeated", _share(_close(sample.all_f, f)), axes=(axis,))


def _shifted(sample: Sample) -> Iterator[Hypothesis]:
    """Positions whose source lies outside say nothing."""
    for axis, size in enumerate(sample.pair.shape):
        for shift in (sign * step for step in _SHIFTS for sign in (1, -1) if step < size):
            index = sample.pair.index(sample.wrong)[axis] + shift
            inside = (index >= 0) & (index < size)
            if int(inside.sum()) < max(3, len(index) // 4):
                continue
            moved = _along(sample, sample.wrong[inside], axis, lambda i, s=shift: i + s)
            share = _share(_close(sample.f[inside], sample.pair.at(moved)[0]))
            if share >= EXPLAINED:
                yield Hypothesis("shifted", share, axes=(axis,), value=float(shift))


def _both(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    return sample.wrong, sample.spread


def _along(sample: Sample, positions: torch.Tensor, axis: int, move: Any) -> torch.Tensor:
    """The positions with their index along one axis moved."""
    index = list(sample.pair.index(positions))
    index[axis] = move(index[axis])
    return _ravel(index, sample.pair.shape)


def _by_index(sample: Sample) -> list[Hypothesis]:
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
            ("term-by-index", f - e, _CLOSE_RMS * rms(e) + 1e-2 * rms(f - e)),
            ("factor-by-index", torch.where(e.abs() > 0.05 * rms(e), f / e, torch.nan), 1e-2),
        ):
            typical = values.nanmedian(dim=1, keepdim=True).values
            if not bool(torch.isfinite(typical).all()):
                continue
            off = (values - typical).abs()
            share = _share((off <= spread)[~torch.isnan(off)])
            differs = float(typical.max() - typical.min()) > 5 * spread
            if share >= EXPLAINED and differs:
                found.append(Hypothesis(name, share, axes=(axis,)))
    return sorted(found, key=lambda h: -h.explains)[:1] or list(_crossed(sample))[:1]


def _table(sample: Sample, axis: int, others: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Values at some indices along `axis` (rows) and some places along the others (columns)."""
    size = sample.pair.shape[axis]
    chosen = torch.linspace(0, size - 1, min(size, 32), device=sample.wrong.device).round().long()
    columns = sample.spread[:: max(1, len(sample.spread) // others)][:others]
    positions = torch.stack([_along(sample, columns, axis, lambda i, c=c: torch.full_like(i, int(c))) for c in chosen])
    e, f = sample.pair.at(positions.flatten())
    return e.view(positions.shape), f.view(positions.shape)


def _crossed(sample: Sample) -> Iterator[Hypothesis]:
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
        spread = _CLOSE_RMS * rms(e) + 1e-2 * rms(d)
        share = _share(rest.abs() <= spread)
        varied = min(float(d.mean(dim=1).std()), float(d.mean(dim=0).std())) > 5 * spread
        if share >= EXPLAINED and varied:
            yield Hypothesis("term-on-wrong-axis", share, axes=(a, b))


def _normalised(sample: Sample) -> list[Hypothesis]:
    """Lines of expected sum to one (softmax), or have mean 0 and variance 1, along one axis, of found along another."""
    lines = [_lines(sample.pair, axis) for axis in range(len(sample.pair.shape))]
    for is_normal in (_sums_to_one, _is_standard):
        of_expected = [is_normal(e) for e, _ in lines]
        of_found = [is_normal(f) for _, f in lines]
        for right, wrong in permutations(range(len(lines)), 2):
            if of_expected[right] and not of_found[right] and of_found[wrong] and not of_expected[wrong]:
                return [Hypothesis("normalised-on-wrong-axis", 1.0, axes=(right, wrong))]
    return []


def _lines(pair: Pair, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Some whole lines along an axis, none where they are longer than one looks at."""
    size = pair.shape[axis]
    starts = pair.spread(_LINES)
    index = list(pair.index(starts))
    along = torch.arange(size if size <= _LONGEST_LINE else 0, device=starts.device)
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


def _sums(sample: Sample) -> list[Hypothesis]:
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


def guess_precision(pair: Pair, e: torch.Tensor, f: torch.Tensor) -> Iterator[Hypothesis]:
    """Errors as rounding makes them: small beside the output, on either side, all over."""
    finite = torch.isfinite(e) & torch.isfinite(f)
    e, f = e[finite], f[finite]
    whole = rms(e)
    if len(e) < 32 or whole == 0:
        return
    error = f - e
    size = rms(error) / whole
    unbiased = abs(float(error.mean())) < 0.3 * rms(error)
    heavy = float(error.abs().max()) > 30 * rms(error)
    if not 3e-5 <= size <= 3e-2 or not unbiased or heavy or _share(error != 0) < 0.5:
        return
    if pair.found.dtype in (torch.float32, torch.float64):
        for name, dtype in (("stored-in-bfloat16", torch.bfloat16), ("stored-in-half", torch.float16)):
            share = _share(f.to(dtype).double() == f)
            if share >= EXPLAINED:
                yield Hypothesis(name, share, value=_rounded(size))
                return
    yield Hypothesis("low-precision", 1.0, value=_rounded(size))
