"""How far two random outputs are apart as distributions: pure functions of sampled elements.

The distance is the largest difference of two empirical distribution functions (Kolmogorov and Smirnov's), where each
element of the reference may be rounded otherwise. Of n independent elements, alike in law or not, one of them is
further than d from its mean with a chance of at most 2 e exp(-2 n d**2) (Bretagnolle 1980; Massart 1990 for elements
alike), and two share the distance: hence `allowed`. That leaves twice the variance for elements that depend a little on
each other; where they depend more, the reference's own runs lie further apart, and widen what is allowed (`width`).

What it does not see: less than `allowed`, and which elements go together, beyond pairs of them and pairs of calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

MOST, _PART = 1 << 16, 1 << 11
_RATE = 1e-12
"""Chance of one distance to be refused by accident: a job has at most some millions of them."""
_USUAL = 0.8687
"""Mean of the Kolmogorov distribution: of the distance of n and n elements of one law, times sqrt(n / 2)."""
_HUGE = 1e300
"""In place of infinities, and twice of NaN: they are values like others."""


@dataclass(frozen=True)
class Sample:
    """Elements of an output in float64, and as many that lie a fixed lag behind them."""

    values: torch.Tensor
    others: torch.Tensor

    def turned(self, shift: int, calls: int) -> Sample:
        """Where as many elements of each of `calls` stand in a row: each call's in the place of another one's."""
        return Sample(*(x.roll(shift * len(x) // calls) for x in (self.values, self.others)))


Pair = tuple[Sample, Sample]
"""Of the reference and of the submission."""


@dataclass(frozen=True)
class Distance:
    """What is compared, and how far it is apart in each of some groups of `size` elements."""

    name: str
    groups: torch.Tensor
    size: int

    @property
    def most(self) -> float:
        return float(self.groups.max())


def choose_places(elements: int, seed: int) -> torch.Tensor:
    """At most `MOST` places of an output in order, one in each of equally long stretches."""
    if elements <= MOST:
        return torch.arange(elements)
    within = torch.rand(MOST, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((torch.arange(MOST) + within) * (elements / MOST)).long().clamp_(max=elements - 1)


def lags_of(shape: Sequence[int]) -> list[int]:
    """How far elements may be apart that a kernel could fill with the same numbers: blocks, and rows of any axis."""
    elements = math.prod(shape)
    strides = {math.prod(shape[axis + 1 :]) for axis in range(len(shape))}
    blocks = {1 << power for power in range(elements.bit_length())}
    return sorted(lag for lag in strides | blocks if lag < elements) or [0]


def sample(flat: torch.Tensor, places: torch.Tensor, lag: int) -> Sample:
    """Those of an output's elements at `places`, where these lie: the output itself may be on the host."""
    both = (places, (places + lag) % max(1, len(flat)))
    found = (flat[at.to(flat.device)].to(places.device).double() for at in both)
    return Sample(*(x.nan_to_num(2 * _HUGE, _HUGE, -_HUGE) for x in found))


def join(samples: Sequence[Sample]) -> Sample:
    """One after the other."""
    return Sample(*(torch.cat([getattr(x, name) for x in samples]) for name in ("values", "others")))


def distances(
    e: Sample, f: Sample, relative: float, *, mean: torch.Tensor | None = None,
    calls: Sequence[Pair] = (), earlier: Sequence[Pair] = (),
) -> Iterator[Distance]:  # fmt: skip
    """How far a submission's elements `f` are from the reference's `e`.

    Args:
        relative: by how much a value may be rounded otherwise, of itself and of the mean size.
        mean: of further runs of the reference: what each element is about, so that none stands in another's place.
        calls: others, which must differ from this one as the reference's do.
        earlier: others, of which as many are looked at together with this one as have the most elements looked at.
    """
    slack = _slack(e.values, relative)
    yield Distance("over all elements", _distance(e.values, f.values, slack), len(slack))
    parts = len(slack) // _PART
    if parts > 1:
        one, two, by = (x[: parts * _PART].view(parts, _PART) for x in (e.values, f.values, slack))
        yield Distance("in a part of the elements", _distance(one, two, by), _PART)
    if pooled := [*earlier[: MOST // len(slack) - 1]]:
        pooled.append((e, f))
        one, two = (torch.cat([x.values for x in side]) for side in zip(*pooled, strict=True))
        by = torch.cat([_slack(x.values, relative) for x, _ in pooled])
        yield Distance("over all elements", _distance(one, two, by), len(by))
    apart = _distance(e.values - e.others, f.values - f.others, slack + _slack(e.others, relative))
    yield Distance("between elements", apart, len(slack))
    if mean is not None:
        yield Distance("about each element's mean", _distance(e.values - mean, f.values - mean, slack), len(slack))
    for e_other, f_other in calls:
        both = slack + _slack(e_other.values, relative)
        moved = _distance(e.values - e_other.values, f.values - f_other.values, both)
        yield Distance("between calls", moved, len(slack))


def _slack(values: torch.Tensor, relative: float) -> torch.Tensor:
    size = values.abs()
    return relative * (size + size[size < _HUGE].sum() / len(size))


def _distance(e: torch.Tensor, f: torch.Tensor, slack: torch.Tensor) -> torch.Tensor:
    """By group, where the elements have shape (groups, size) or (size,).

    How far e's share below any value, all rounded up, exceeds f's; and f's that of e, all rounded down.
    """
    rows = [x.view(-1, x.shape[-1]).sort(dim=1).values for x in (e - slack, f, e + slack)]
    low, f, high = rows
    rank = torch.arange(1, f.shape[1] + 1, device=f.device)
    above = rank - torch.searchsorted(f, high, right=True)
    below = rank - torch.searchsorted(low, f, right=True)
    return torch.maximum(above, below).amax(dim=1) / f.shape[1]


def allowed(size: int) -> float:
    """The distance that two times `size` elements exceed by accident with a chance of at most `_RATE`."""
    return math.sqrt(2 * math.log(4 * math.e / _RATE) / size)


def width(runs: Sequence[Distance]) -> float:
    """How much more is allowed, by what pairs of the reference's own runs were apart.

    Where all elements move together, the distance is that of a normal variable from 0, whose deviation is 1.25 times
    its mean: what is allowed then is five deviations or more, however large. Where few do, the largest tells more.
    """
    groups = torch.stack([run.groups for run in runs])
    usual = _USUAL * math.sqrt(2 / runs[0].size)
    return max(1.0, 2 * float(groups.mean()) / usual - 1, 2 * float(groups.max()) / allowed(runs[0].size))
