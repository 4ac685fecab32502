"""Numbers for a whole run: pure functions over what became of every sample, each with the source of its formula.

A sample is one independent attempt at a problem (one answer, or one conversation, of which its fastest credited turn
counts). Best of n is the fastest credited sample of a problem, and the memory is that sample's. A problem without any
judged sample (a fault of the machine) is in no denominator; an attempt that failed is in every one.

Sources: KernelBench (arXiv 2502.10517), fast_p; HumanEval (arXiv 2107.03374), pass@k; KernelBench-Verified
(arXiv 2607.16241), the conventions of mean speedup and memory efficiency, and the decomposition.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from kbenv.verdict import Stage, Verdict

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Of fast_p, those that KernelBench's own analysis prints."""
RESAMPLES = 2000
CONFIDENCE = 0.95


# -- one number over problems -----------------------------------------------------------------------------------------


def fast_p(correct: Sequence[bool], speedup: Sequence[float | None], p: float) -> float:
    """The share of problems that are correct and faster than `p` times the baseline, strictly (KernelBench).

    `fast_p(..., 0)` is the share of correct problems.

    Args:
        correct: per problem.
        speedup: per problem; None (or anything) where it is not correct.

    Raises:
        ValueError: there is no problem, or the lengths differ.
    """
    _check(correct, speedup)
    return sum(ok and fast is not None and fast > p for ok, fast in zip(correct, speedup, strict=True)) / len(correct)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that one of `k` samples is right, unbiased from `c` right ones of `n` (HumanEval, equation 1).

        1 - C(n - c, k) / C(n, k)

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n: fewer than k samples say nothing unbiased about k.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must be from 0 to n = {n}; found {c}")
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to n = {n}; found {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def fast_p_at_k(speedups: Sequence[Sequence[float | None]], p: float, k: int) -> float:
    """fast_p of the best of `k` samples, unbiased: the mean over problems of `pass_at_k` with "correct and faster than
    p" in the place of "correct" (KernelBench's fast_p under repeated sampling; with p = 0 it is pass@k).

    Args:
        speedups: per problem those of its samples, None where a sample is not correct.

    Raises:
        ValueError: there is no problem, or one has fewer than `k` samples.
    """
    if not speedups:
        raise ValueError("there is no problem to take a mean over")
    shares = [pass_at_k(len(own), sum(x is not None and x > p for x in own), k) for own in speedups]
    return math.fsum(shares) / len(shares)


def geometric_mean(values: Sequence[float]) -> float | None:
    """exp of the mean logarithm; None for no value, 0 where one is 0."""
    if not values:
        return None
    if any(value == 0 for value in values):
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def geometric_mean_speedup(correct: Sequence[bool], speedup: Sequence[float | None]) -> float | None:
    """Over the correct problems alone ("correct speedup" of KernelBench-Verified); None when none is correct.

    It says how fast correct kernels are and nothing of how many there are: a model that solves but one problem well
    has a high one.
    """
    _check(correct, speedup)
    return geometric_mean([fast for ok, fast in zip(correct, speedup, strict=True) if ok and fast is not None])


def geometric_mean_speedup_of_all(correct: Sequence[bool], speedup: Sequence[float | None]) -> float:
    """Over all problems: max(1, speedup) where correct, 1 elsewhere ("average speedup" of KernelBench-Verified).

    The convention is that of somebody who keeps PyTorch's own code wherever the kernel is wrong or slower; hence it is
    never below 1.
    """
    _check(correct, speedup)
    own = [max(1.0, fast) if ok and fast is not None else 1.0 for ok, fast in zip(correct, speedup, strict=True)]
    return geometric_mean(own) or 1.0


def memory_efficiency(correct: Sequence[bool], ratio: Sequence[float | None]) -> float | None:
    """Geometric mean over correct problems of the reference's peak over the submission's ("correct memory efficiency"
    of KernelBench-Verified); above 1 kernels need less. None where no memory was measured."""
    _check(correct, ratio)
    return geometric_mean([value for ok, value in zip(correct, ratio, strict=True) if ok and value is not None])


def share_that_raises_memory(correct: Sequence[bool], ratio: Sequence[float | None]) -> float | None:
    """Of the correct problems with a measured ratio, those whose kernel needs more memory (ratio below 1, strictly)."""
    _check(correct, ratio)
    known = [value for ok, value in zip(correct, ratio, strict=True) if ok and value is not None]
    return sum(value < 1 for value in known) / len(known) if known else None


def bootstrap_interval(
    values: Sequence[float | None],
    *,
    geometric: bool = False,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[float, float] | None:
    """The percentile bootstrap interval of a mean, problems resampled (Efron and Tibshirani 1993, chapter 13).

    It says how much the number would differ on other problems of the same kind. What happened within a problem is kept
    as it is; the clock's own uncertainty is in each verdict. Equal arguments give equal bounds.

    Args:
        values: one for each problem; None where the problem is not in the mean (it is drawn all the same).
        geometric: of the geometric mean.

    Returns:
        None with fewer than two values: nothing can be resampled.
    """
    known = np.array([value is not None for value in values])
    if known.sum() < 2:
        return None
    numbers = np.array([0.0 if value is None else value for value in values])
    if geometric:
        with np.errstate(divide="ignore"):
            numbers = np.where(known, np.log(np.where(known, numbers, 1.0)), 0.0)
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    counts = known[drawn].sum(axis=1)
    means = numbers[drawn].sum(axis=1)[counts > 0] / counts[counts > 0]
    bounds = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(np.exp(means) if geometric else means, bounds, method="nearest")
    return float(low), float(high)


# -- from verdicts to numbers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """What metrics read off one attempt.

    Attributes:
        standard: it passed every standard trial (under the protocol's tolerance), whatever the hidden checks said.
        speedup, memory_ratio: of a credited attempt; None else.
    """

    standard: bool
    speedup: float | None
    memory_ratio: float | None = None

    @property
    def correct(self) -> bool:
        """Whether it is credited."""
        return self.speedup is not None


@dataclass(frozen=True)
class Solved:
    """One problem and all its judged samples, at least one."""

    problem: str
    samples: tuple[Sample, ...]
    level: int | None = None
    category: str | None = None

    @property
    def best(self) -> Sample:
        """The fastest credited sample, or any when none is credited."""
        return max(self.samples, key=lambda sample: sample.speedup or 0.0)


def read_sample(verdict: Verdict) -> Sample:
    """The sample that one verdict is."""
    trials = [check.passed for check in verdict.checks if check.stage is Stage.STANDARD]
    failed_there = verdict.stage in (Stage.FORMAT, Stage.LOAD, Stage.STANDARD)
    credited = verdict.credited and verdict.speedup is not None
    return Sample(
        standard=bool(trials) and not failed_there and False not in trials,
        speedup=verdict.speedup.value if credited and verdict.speedup is not None else None,
        memory_ratio=verdict.memory.ratio if credited and verdict.memory is not None else None,
    )


def merge_turns(samples: Sequence[Sample]) -> Sample:
    """One conversation as one sample: its fastest credited turn; right on the standard trials if any turn was.

    Raises:
        ValueError: no turn.
    """
    best = max(samples, key=lambda sample: sample.speedup or 0.0)
    return Sample(any(sample.standard for sample in samples), best.speedup, best.memory_ratio)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Number(_Frozen):
    """A value over problems with its bootstrap interval; the bounds are None where there is too little to resample."""

    value: float
    low: float | None = None
    high: float | None = None


class Summary(_Frozen):
    """The metrics of one set of problems.

    Attributes:
        problems: judged ones, which is the denominator of every share.
        samples: attempts judged.
        correct: share of problems with a credited sample (best of n).
        standard: share with a sample that passed the standard trials: what `correct` would be without hidden checks.
        fast: fast_p of the best of n, by p.
        pass_at: pass@k by k, for those k that every problem has samples for.
        fast_at: fast_p@k for p = 1, likewise.
        speedup: geometric mean over correct problems of the fastest credited sample's.
        speedup_of_all: over all problems, with 1 where PyTorch would be kept.
        memory: geometric mean of reference over submission, of the fastest credited samples.
        raises_memory: share of correct problems whose fastest kernel needs more memory.
    """

    problems: int
    samples: int
    correct: Number
    standard: Number
    fast: dict[str, Number]
    pass_at: dict[str, Number]
    fast_at: dict[str, Number]
    speedup: Number | None
    speedup_of_all: Number
    memory: Number | None
    raises_memory: Number | None


def summarise(problems: Sequence[Solved], thresholds: Sequence[float] = THRESHOLDS) -> Summary:
    """Every metric over `problems`, each with an interval.

    Raises:
        ValueError: there is no problem.
    """
    if not problems:
        raise ValueError("there is no judged problem to summarise")
    best = [solved.best for solved in problems]
    speedups = [sample.speedup for sample in best]
    samples = [[sample.speedup for sample in solved.samples] for solved in problems]
    least = min(map(len, samples))
    ks = sorted({1, least} | {k for k in (5, 10, 100) if k <= least})

    def at(p: float, k: int) -> Number:
        return _share([pass_at_k(len(own), sum(x is not None and x > p for x in own), k) for own in samples])

    raises = [None if sample.memory_ratio is None else float(sample.memory_ratio < 1) for sample in best]
    kept = [1.0 if speedup is None else max(1.0, speedup) for speedup in speedups]
    return Summary(
        problems=len(problems),
        samples=sum(map(len, samples)),
        correct=_share([float(sample.correct) for sample in best]),
        standard=_share([float(any(sample.standard for sample in solved.samples)) for solved in problems]),
        fast={f"{p:g}": _share([float(x is not None and x > p) for x in speedups]) for p in thresholds},
        pass_at={str(k): at(0.0, k) for k in ks},
        fast_at={str(k): at(1.0, k) for k in ks},
        speedup=_number(speedups, geometric=True),
        speedup_of_all=_number(kept, geometric=True) or Number(value=1.0),
        memory=_number([sample.memory_ratio for sample in best], geometric=True),
        raises_memory=_number(raises),
    )


K = TypeVar("K", bound=Hashable)


def summarise_groups(problems: Sequence[Solved], key: Callable[[Solved], K | None]) -> Mapping[K, Summary]:
    """A summary for each value of `key`, in order; problems where it is None are left out."""
    groups: dict[K, list[Solved]] = defaultdict(list)
    for solved in problems:
        value = key(solved)
        if value is not None:
            groups[value].append(solved)
    return {value: summarise(groups[value]) for value in sorted(groups, key=str)}


# -- what the two corrections of KernelBench-Verified take away -------------------------------------------------------


@dataclass(frozen=True)
class Corrected:
    """The best-of-n speedup of one problem under each step; None where no sample is right under its checks.

    Attributes:
        right: whether a sample passes the standard trials.
        standard: against the baseline under PyTorch's defaults, standard trials alone; None also where it is right
            and was not timed.
        hidden: against that baseline, hidden checks too.
        tf32: against the TF32 baseline, hidden checks too.
    """

    right: bool
    standard: float | None
    hidden: float | None
    tf32: float | None


class Step(_Frozen):
    """One line of a decomposition."""

    correct: Number
    faster: Number
    speedup: Number | None


class Decomposition(_Frozen):
    """What remains of a result under stricter rules (KernelBench-Verified's decomposition).

    Attributes:
        problems: those in every step.
        steps: "standard" (PyTorch's defaults, standard trials), "hidden" (and hidden checks), "tf32" (and a TF32
            baseline).
        reach_hidden: share of problems that are right by the standard trials and not by the hidden checks.
        reach_tf32: share whose speedup falls by half or more with the TF32 baseline.
    """

    problems: int
    steps: dict[str, Step]
    reach_hidden: float
    reach_tf32: float


def decompose(problems: Sequence[Corrected]) -> Decomposition:
    """The three steps, and how many problems each correction reaches.

    Raises:
        ValueError: there is no problem.
    """
    if not problems:
        raise ValueError("there is no judged problem to decompose")
    hidden = [problem.hidden for problem in problems]
    tf32 = [problem.tf32 for problem in problems]
    steps = {
        "standard": _step([problem.right for problem in problems], [problem.standard for problem in problems]),
        "hidden": _step([x is not None for x in hidden], hidden),
        "tf32": _step([x is not None for x in tf32], tf32),
    }
    reach_hidden = sum(problem.right and problem.hidden is None for problem in problems) / len(problems)
    halved = sum(a is not None and b is not None and b <= 0.5 * a for a, b in zip(hidden, tf32, strict=True))
    return Decomposition(
        problems=len(problems), steps=steps, reach_hidden=reach_hidden, reach_tf32=halved / len(problems)
    )


def _step(right: Sequence[bool], speedups: Sequence[float | None]) -> Step:
    return Step(
        correct=_share([float(x) for x in right]),
        faster=_share([float(x is not None and x > 1) for x in speedups]),
        speedup=_number(speedups, geometric=True),
    )


# -- small things -----------------------------------------------------------------------------------------------------


def _check(correct: Sequence[bool], values: Sequence[float | None]) -> None:
    if not correct:
        raise ValueError("there is no problem to take a share or a mean of")
    if len(correct) != len(values):
        raise ValueError(f"one value a problem is expected; found {len(values)} for {len(correct)} problems")


def _share(values: Sequence[float]) -> Number:
    """The mean over all problems, of which there is at least one."""
    interval = bootstrap_interval(values) or (None, None)
    return Number(value=math.fsum(values) / len(values), low=interval[0], high=interval[1])


def _number(values: Sequence[float | None], *, geometric: bool = False) -> Number | None:
    """The mean over the problems that have a value; None where none has."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    value = geometric_mean(known) if geometric else math.fsum(known) / len(known)
    low, high = bootstrap_interval(values, geometric=geometric) or (None, None)
    return Number(value=value or 0.0, low=low, high=high)
