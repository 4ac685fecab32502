"""Confidence intervals for ratios of latencies measured in paired turns over re-created pairs of runners."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_T_QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t, 97.5%, by degrees of freedom (any statistical table)."""
_NORMAL_QUANTILE = 1.960
_PARTS = 3


MEDIAN_OF_PAIRS = "median-of-pairs"


@dataclass(frozen=True)
class Ratio:
    value: float
    low: float
    high: float


def centre(values: Sequence[float], statistic: str) -> float:
    """The protocol's statistic over turns: "mean" or "median"."""
    return statistics.fmean(values) if statistic == "mean" else statistics.median(values)


def bootstrap_ratio(
    pairs: Sequence[Sequence[tuple[float, float]]], statistic: str, resamples: int, confidence: float, seed: int,
    pair_spread: float = 0.0,
) -> Ratio:  # fmt: skip
    """reference over submission, with a block-bootstrap interval.

    Args:
        pairs: per pair of runners, its turns' (reference, submission) latencies. Pairs are the blocks: two processes of
            the same code differ steadily by a percent or two (where their memory lies), so turns of one pair are no
            independent sample. Pairs are resampled, then turns within each.
        pair_spread: standard deviation of the logarithm of what different pairs show. One pair alone cannot show it:
            it is added to the distances of its interval, as independent errors add (in quadrature).
        statistic: "mean" or "median" of each side, then their ratio; MEDIAN_OF_PAIRS: of the turns' own ratios.

    One pair alone is cut into a few parts of neighbouring turns, which are alike where a machine drifts.

    The percentile interval of so few blocks is too narrow; its distances from the value are widened by
    t(n-1)/z * sqrt(n/(n-1)), the small-sample correction for n blocks.
    """
    turns = [turn for pair in pairs for turn in pair]
    unseen = 0.0
    if len(pairs) == 1:
        unseen = _NORMAL_QUANTILE * pair_spread
        pairs = _parts(turns)
    value = _ratio(turns, statistic)
    generator = random.Random(seed)
    logs = []
    for _ in range(resamples):
        sample = [t for pair in generator.choices(pairs, k=len(pairs)) for t in generator.choices(pair, k=len(pair))]
        logs.append(math.log(_ratio(sample, statistic)))
    logs.sort()
    tail = (1 - confidence) / 2
    low, high = logs[int(tail * resamples)], logs[min(resamples - 1, int((1 - tail) * resamples))]
    blocks = len(pairs)
    widening = 1.0
    if blocks > 1:
        widening = _t_quantile(blocks - 1) / _NORMAL_QUANTILE * math.sqrt(blocks / (blocks - 1))
    middle = math.log(value)
    below, above = (math.hypot(widening * max(0.0, distance), unseen) for distance in (middle - low, high - middle))
    return Ratio(value, math.exp(middle - below), math.exp(middle + above))


def is_tight(ratio: Ratio, share: float) -> bool:
    """Whether the interval reaches no further than this share to either side."""
    return ratio.high <= (1 + share) * ratio.value and ratio.value <= (1 + share) * ratio.low


def _parts(turns: Sequence[tuple[float, float]]) -> list[Sequence[tuple[float, float]]]:
    """At most `_PARTS` of about equal length, in the order of time."""
    parts = min(_PARTS, len(turns))
    ends = [len(turns) * part // parts for part in range(parts + 1)]
    return [turns[begin:end] for begin, end in itertools.pairwise(ends)]


def _t_quantile(freedom: int) -> float:
    """Student's t, 97.5%: beyond the table the first terms of its expansion about the normal quantile z."""
    z = _NORMAL_QUANTILE
    return _T_QUANTILES.get(freedom) or z + (z**3 + z) / (4 * freedom)


def _ratio(turns: Sequence[tuple[float, float]], statistic: str) -> float:
    if statistic == MEDIAN_OF_PAIRS:
        return statistics.median(reference / submission for reference, submission in turns)
    return centre([turn[0] for turn in turns], statistic) / centre([turn[1] for turn in turns], statistic)


def lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


def robust_error(values: Sequence[float]) -> float:
    """Standard error of the median, from the quartiles, which a stray value does not move; the range of less than four.

    Of normal values the interquartile range is 1.349 standard deviations, and the median's error sqrt(pi / 2) times the
    mean's.
    """
    if len(values) < 4:
        return max(values) - min(values)
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / 1.349 * math.sqrt(math.pi / 2 / len(values))
