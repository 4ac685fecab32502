"""What is right by a set's own rule, in place of a tolerance: metrics of whole outputs, or a checker of the set's.

Metrics are cosine similarity, relative L1 error and root mean square error of each floating output, in float64;
integers must be equal, and NaN and infinities stand where the reference's do. A checker is the set's code: it runs in
the reference's process, on inputs and outputs that the judge puts there, and says yes or no. Every call is held
against the rule, timed ones included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..layout import Arena
from .arm import REFERENCE_S
from .compare import CHUNK_ELEMENTS, Comparison
from .faults import InfrastructureFault
from .slots import copy_slots
from .truth import Truth

if TYPE_CHECKING:
    from .job import Job


def rule_of(job: Job) -> Truth:
    """The job's truth: by its problem's own rule where there is one that replaces tolerances."""
    comparator: Mapping[str, Any] = job.problem.get("comparator") or {}
    if comparator.get("kind") == "metrics":
        return MetricRule(job, comparator["parameters"])
    return CheckerRule(job) if comparator.get("kind") == "custom" else job.truth


class _OwnRule(Truth):
    """Nothing is calibrated: the rule says what is right."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.calibrated = False

    def calibrate(self, slot: int, *, drawn: bool = True) -> str | None:
        return None

    def judge(self, slot: int, *, with_ceiling: bool, with_loss: bool = False) -> Comparison | str:
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
                comparison.merge(Comparison(elements=elements, mismatched=0 if answer["passed"] else elements))
        return comparison


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
        if not (right and _within(sums, leaf.elements, thresholds)):
            into.mismatched += max(1, leaf.elements)
    return into


def _within(sums: Mapping[str, float], elements: int, thresholds: Mapping[str, float]) -> bool:
    norms = math.sqrt(sums["expected"]), math.sqrt(sums["found"])
    zeros = [norm < 1e-12 for norm in norms]
    cosine = float(all(zeros)) if any(zeros) else sums["product"] / (norms[0] * norms[1])
    relative = sums["l1"] / max(sums["size"], 1e-12)
    rmse = math.sqrt(sums["error"] / max(elements, 1))
    return (
        cosine >= thresholds.get("cosine_sim", -1.0)
        and relative <= thresholds.get("l1_relative", math.inf)
        and rmse <= thresholds.get("rmse", math.inf)
    )
