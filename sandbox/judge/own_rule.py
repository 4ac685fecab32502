"""What is right by a set's own rule, in place of a tolerance: metrics, a checker of the set's, or a distribution.

Metrics are cosine similarity, relative L1 error and root mean square error of each floating output, in float64;
integers must be equal, and NaN and infinities stand where the reference's do. A checker is the set's code: it runs in
the reference's process, on inputs and outputs that the judge puts there, and says yes or no. Outputs that are random
by contract are compared as distributions (`distribution`), where enough can be told of them. Every call is held against
the rule, timed ones included.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..layout import Arena
from .arm import REFERENCE_S
from .compare import CHUNK_ELEMENTS, Comparison, count_nonfinite
from .distribution import MOST, Distance, Sample, allowed, choose_places, distances, join, lags_of, sample, width
from .faults import InfrastructureFault
from .slots import copy_slots
from .truth import Truth

if TYPE_CHECKING:
    from .job import Job

_MOST_ALLOWED = 0.1
"""Of a whole output: a reference of which larger distances may be chance is not judged. (A dropout rate of 0.4 is 0.05
to 0.1 from one of 0.5; of small outputs that takes several calls to be seen.)"""
_PAIRS, _MEAN_OF, _EARLIER = 15, 6, 16

_Samples = list[Sample]
"""By output."""
_Pair = tuple[_Samples, _Samples]
"""Of the reference and of the submission."""


def rule_of(job: Job) -> Truth:
    """The job's truth: by its problem's own rule where there is one that replaces tolerances."""
    comparator: Mapping[str, Any] = job.problem.get("comparator") or {}
    if comparator.get("kind") == "metrics":
        return MetricRule(job, comparator["parameters"])
    if comparator.get("kind") == "distribution":
        return DistributionRule(job)
    return CheckerRule(job) if comparator.get("kind") == "custom" else job.truth


class _OwnRule(Truth):
    """Nothing is calibrated: the rule says what is right."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.calibrated = False

    def calibrate(self, slot: int, *, drawn: bool = True) -> str | None:
        return None

    def judge(
        self, slot: int, *, with_ceiling: bool, with_loss: bool = False, calibrated: bool = False
    ) -> Comparison | str:
        return self.judge_timed(slot, 1, self._job.store.snapshot)

    def close_checks(self) -> None:
        """No float64 has been used."""


class MetricRule(_OwnRule):
    """By cosine similarity, relative L1 error and root mean square error."""

    def __init__(self, job: Job, thresholds: Mapping[str, float]) -> None:
        super().__init__(job)
        self._thresholds = thresholds

    def judge_timed(self, first: int, calls: int, found: Arena) -> Comparison:
        expected, comparison = self._job.store.expected, Comparison()
        for slot in range(first, first + calls):
            comparison.merge(compare_metrics(expected, found, slot, self._thresholds, self._job.device))
        return comparison


class CheckerRule(_OwnRule):
    """By the checker that the problem's source defines."""

    def judge_timed(self, first: int, calls: int, found: Arena) -> Comparison:
        job, comparison = self._job, Comparison()
        reference = job.arm("reference")
        with job.reference_faults(), job.trusted.lent_to(reference):
            copy_slots(job.store.masters, job.trusted.inputs, first, calls)
            copy_slots(found, job.trusted.outputs, first, calls)
            job.synchronize()
            for slot in range(first, first + calls):
                answer = reference.ask("check", timeout_s=REFERENCE_S, slot=slot)
                if not isinstance(answer.get("passed"), bool):
                    raise InfrastructureFault("reference", "the problem's checker said neither yes nor no")
                elements = sum(leaf.elements for leaf in job.signature.outputs.leaves)
                reason = None if answer["passed"] else "the task's own checker does not take the output"
                comparison.merge(Comparison(elements, 0 if reason is None else elements, reason=reason))
        return comparison


class DistributionRule(_OwnRule):
    """By how far the distributions of the submission's elements are from those of the reference's, on equal inputs.

    Two calls on equal inputs, in a standard trial, must differ as two of the reference's do, and every call from
    another one on other inputs, so that nothing fixed or kept is right.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._places: list[torch.Tensor] = []
        self._lags: list[int] = []
        self._widths: dict[tuple[int, str], float] = {}
        self._standard = False
        self._earlier: list[_Pair] = []
        """Calls of the present runner, expected and found: another one may begin with the same random numbers."""
        self._arm: object = None

    def calibrate(self, slot: int, *, drawn: bool = True) -> str | None:
        self._standard = True
        if not self._widths:
            self._choose(calls=1)
            if (reason := self._learn(slot)) is not None:
                raise _weak(reason)
        return None

    def judge(
        self, slot: int, *, with_ceiling: bool, with_loss: bool = False, calibrated: bool = False
    ) -> Comparison | str:
        job, standard, self._standard = self._job, self._standard, False
        self._choose(calls=1)
        slots, others = range(slot, slot + 1), list[_Pair]()
        found = self._found(job.store.snapshot, slots)
        if standard:
            job.call_submission("standard", first=slot, calls=1, gated=False)
            again = self._samples(job.store.snapshot, slots)
            others = [(self._run(slot), again)]
        comparison = self._hold(slots, found, others, self._mean(slot))
        if standard and isinstance(comparison, str):
            raise _weak(comparison)
        return comparison

    def judge_timed(self, first: int, calls: int, found: Arena) -> Comparison:
        """As many elements of a whole turn as of a check, and no means: no submission can tell which it is."""
        self._choose(calls)
        slots = range(first, first + calls)
        comparison = self._hold(slots, self._found(found, slots), [], None)
        if isinstance(comparison, str):
            raise _weak(comparison)
        return comparison

    def _hold(
        self, slots: range, found: _Samples | None, others: list[_Pair], mean: list[torch.Tensor] | None
    ) -> Comparison | str:
        """Where it fails, more is found out about the reference on these inputs; or why that can judge nothing."""
        elements = [len(slots) * leaf.elements for leaf in self._job.signature.outputs.leaves]
        if found is None:
            return Comparison(sum(elements), sum(elements), reason="NaN or infinity, where the reference has none")
        if self._arm is not self._job.arm("submission"):
            self._arm, self._earlier = self._job.arm("submission"), []
        now, earlier = (self._samples(self._job.store.expected, slots), found), list[_Pair]()
        if len(slots) == 1:
            earlier, self._earlier = self._earlier[::-1], [*self._earlier[1 - _EARLIER :], now]
            others = [*others, *([secrets.choice(earlier)] if earlier else [])]
        else:  # each call of a turn beside another one of it
            shift = 1 + secrets.randbelow(len(slots) - 1)
            one, two = ([x.turned(shift, len(slots)) for x in side] for side in now)
            others = [(one, two)]
        seen = list(self._distances(*now, mean, others, earlier))
        refused = any(distance.most > self._allowed(index, distance) for index, distance in seen)
        if refused and (reason := self._learn(slots[0])) is not None:
            return reason
        comparison, wrong = Comparison(sum(elements)), set()
        for index, distance in seen:
            limit = self._allowed(index, distance)
            comparison.tolerance_used = max(comparison.tolerance_used, distance.most / limit)
            if distance.most > limit:
                wrong.add(index)
                comparison.reason = comparison.reason or (
                    f"output {index} has another distribution {distance.name}: at a distance of {distance.most:.3g}, "
                    f"where the reference's own calls stay below {limit:.3g}"
                )
        comparison.mismatched = sum(elements[index] for index in wrong)
        return comparison

    def _allowed(self, index: int, distance: Distance) -> float:
        return allowed(distance.size) * self._widths[index, distance.name]

    def _learn(self, slot: int) -> str | None:
        """How far the reference's own runs on these inputs are apart. Returns why nothing can be held against them."""
        self._places = self._all_places
        runs = [self._samples(self._job.store.expected, range(slot, slot + 1))]
        runs += [self._run(slot) for _ in range(_PAIRS + 2)]
        mean, pairs = self._mean(slot), defaultdict[tuple[int, str], list[Distance]](list)
        for number in range(_PAIRS):
            one, two, three, four = runs[number : number + 4]
            for index, distance in self._distances(one, two, mean, [(three, four)], []):
                pairs[index, distance.name].append(distance)
        for (index, name), seen in pairs.items():
            size = seen[0].size
            self._widths[index, name] = width(seen)
            limit = self._allowed(index, seen[0])
            if all(torch.equal(run[index].values, runs[0][index].values) for run in runs):
                return f"output {index} is random by contract, and the same in {len(runs)} runs on equal inputs"
            if len(seen[0].groups) > 1:
                continue
            if allowed(size) > _MOST_ALLOWED:
                return f"output {index} has {size} elements, too few to tell one distribution from another"
            if limit > _MOST_ALLOWED:
                return (
                    f"the elements of output {index} depend on each other: a distance of {limit:.3g} {name} may be "
                    f"chance, and more than {_MOST_ALLOWED} is too much to tell distributions apart"
                )
        return None

    def _distances(
        self, e: _Samples, f: _Samples, mean: list[torch.Tensor] | None, others: list[_Pair], earlier: list[_Pair]
    ) -> Iterator[tuple[int, Distance]]:
        """Of each output, with its index."""
        for index, leaf in enumerate(self._job.signature.outputs.leaves):
            if leaf.elements:
                floating = leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex
                for distance in distances(
                    e[index], f[index], self._job.protocol["tolerance"]["relative"] if floating else 0.0,
                    mean=None if mean is None else mean[index],
                    calls=[(one[index], two[index]) for one, two in others],
                    earlier=[(one[index], two[index]) for one, two in earlier],
                ):  # fmt: skip
                    yield index, distance

    @cached_property
    def _all_places(self) -> list[torch.Tensor]:
        """By output: of the elements that are looked at, which no submission knows."""
        job = self._job
        counts = [leaf.elements << leaf.torch_dtype.is_complex for leaf in job.signature.outputs.leaves]
        return [choose_places(count, job.seeds.transform + index).to(job.device) for index, count in enumerate(counts)]

    def _choose(self, calls: int) -> None:
        """At what is looked now: of one call all places, of several so many of each that they are no more together."""
        leaves, self._places = self._job.signature.outputs.leaves, []
        for places in self._all_places:
            most = max(1, MOST // calls)
            some = torch.randperm(len(places), device=places.device)[:most].sort().values
            self._places.append(places[some] if len(places) > most else places)
        self._lags = [secrets.choice(lags_of(leaf.shape)) << leaf.torch_dtype.is_complex for leaf in leaves]

    def _found(self, arena: Arena, slots: range) -> _Samples | None:
        """Of the submission; None where it has NaN or infinities and the reference has none."""
        expected, device = self._job.store.expected, self._job.device
        for slot in slots:
            if count_nonfinite(arena, slot, device) and not count_nonfinite(expected, slot, device):
                return None
        return self._samples(arena, slots)

    def _samples(self, arena: Arena, slots: range) -> _Samples:
        found = []
        for index, (places, lag) in enumerate(zip(self._places, self._lags, strict=True)):
            flats = [_real(arena.flat_leaf(slot, index)) for slot in slots]
            found.append(join([sample(flat, places, lag) for flat in flats]))
        return found

    def _run(self, slot: int) -> _Samples:
        """Another run of the reference on the same inputs; what is in the snapshot is lost."""
        self._job.call_reference("reference_correctness", first=slot, calls=1)
        return self._samples(self._job.store.snapshot, range(slot, slot + 1))

    def _mean(self, slot: int) -> list[torch.Tensor]:
        runs = [self._run(slot) for _ in range(_MEAN_OF)]
        return [torch.stack([run[index].values for run in runs]).mean(dim=0) for index in range(len(self._places))]


def _real(flat: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers one after the other."""
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def _weak(reason: str) -> InfrastructureFault:
    return InfrastructureFault(
        "reference",
        f"{reason}: nothing can be held against the reference; choose a problem whose outputs have more elements that "
        "are random independently of each other",
    )


def compare_metrics(
    expected: Arena, found: Arena, slot: int, thresholds: Mapping[str, float], device: str
) -> Comparison:
    """Holds each output of one slot against the thresholds; one that fails has all its elements counted as wrong.

    Args:
        thresholds: "cosine_sim" at least, "l1_relative" and "rmse" at most, those that are there.
    """
    into = Comparison()
    for index, leaf in enumerate(expected.layout.leaves):
        sums = dict.fromkeys(("product", "expected", "found", "error", "l1", "size"), 0.0)
        right, largest, step = True, 0.0, CHUNK_ELEMENTS[device]
        for start in range(0, leaf.elements, step):
            e, f = (arena.flat_leaf(slot, index)[start : start + step].to(device) for arena in (expected, found))
            if not leaf.torch_dtype.is_floating_point:
                right = right and torch.equal(e, f)
                continue
            e, f = e.double(), f.double()
            finite = torch.isfinite(e)
            same = (e == f) | ((e != e) & (f != f))
            right = right and bool((torch.isfinite(f) == finite).all()) and bool((same | finite).all())
            e, f = (torch.where(finite, x, 0.0) for x in (e, f))
            error = (f - e).abs()
            largest = max(largest, float(error.max()))
            for name, value in (
                ("product", e * f), ("expected", e * e), ("found", f * f), ("error", error * error),
                ("l1", error), ("size", e.abs()),
            ):  # fmt: skip
                sums[name] += float(value.sum())
        into.elements += leaf.elements
        into.add_errors(index, largest, 0.0)
        words = "integers, NaN or infinities are other than the reference's"
        if not right or (words := _outside(sums, leaf.elements, thresholds)):
            into.mismatched += max(1, leaf.elements)
            into.reason = into.reason or f"output {index}: {words}"
    return into


def _outside(sums: Mapping[str, float], elements: int, thresholds: Mapping[str, float]) -> str:
    """Which measures are outside their thresholds, in words; empty where none is."""
    norms = math.sqrt(sums["expected"]), math.sqrt(sums["found"])
    zeros = [norm < 1e-12 for norm in norms]
    cosine = float(all(zeros)) if any(zeros) else sums["product"] / (norms[0] * norms[1])
    relative = sums["l1"] / max(sums["size"], 1e-12)
    rmse = math.sqrt(sums["error"] / max(elements, 1))
    found = [
        f"{name} is {value:.4g}, and {'at least' if sign > 0 else 'at most'} {thresholds[name]:.4g} is wanted"
        for name, value, sign in (("cosine_sim", cosine, 1), ("l1_relative", relative, -1), ("rmse", rmse, -1))
        if name in thresholds and not sign * value >= sign * thresholds[name]
    ]
    return "; ".join(found)
