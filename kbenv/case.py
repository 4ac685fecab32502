"""One verdict on a problem of several cases: a kernel must be right on all of them, and is as fast as on its worst.

A case is judged by a job of its own. What is only checked is judged first, and what is timed comes last; but hidden
cases come after one that is shown, so that an agent reads of a plain fault: where none is only checked, one that is
timed goes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from kbenv.errors import UsageError
from kbenv.problems.problem import Case, Problem
from kbenv.verdict import Check, Stage, Status, Verdict

_ORDER = {"public": 0, "hidden": 1, "perf": 2}
_SEEDS = "cases"


def split(problem: Problem, precision: str) -> tuple[list[tuple[Case, Problem]], dict[str, str]]:
    """The cases that are judged under `precision`, in the order of judging, and why the others are not, by name."""
    judged, left_out = [], {}
    for case in sorted(problem.cases, key=lambda case: _ORDER[case.role]):
        one = problem.for_case(case.name)
        reason = one.why_unjudged(precision)
        if reason is None:
            judged.append((case, one))
        else:
            left_out[case.name] = reason
    return _shown_first(judged), left_out


def seeds_of(seeds: Mapping[str, JsonValue] | None, case: Case) -> Mapping[str, JsonValue] | None:
    """Those of one case, from the seeds of a verdict on all of them; None where there are none to replay.

    Raises:
        UsageError: the verdict did not judge this case.
    """
    if seeds is None:
        return None
    cases = seeds.get(_SEEDS)
    if not isinstance(cases, dict) or not isinstance(found := cases.get(case.name), dict):
        raise UsageError(f"the verdict holds no seeds of the case {case.name!r}: it was not judged there")
    return found


def ends(case: Case, verdict: Verdict) -> bool:
    """Whether nothing after this case matters. Whose kernels run counts only where the time does."""
    if verdict.status is Status.NO_CUSTOM_KERNEL:
        return case.role == "perf"
    return not verdict.credited


def combine(problem: Problem, judged: Sequence[tuple[Case, Verdict]], left_out: Mapping[str, str]) -> Verdict:
    """The verdict on all cases: of the one that failed, else of the timed one with the least speedup."""
    case, verdict = judged[-1]
    failed = ends(case, verdict)
    if not failed:
        timed = [item for item in judged if item[0].role == "perf"] or list(judged)
        case, verdict = min(timed, key=lambda item: item[1].speedup.value if item[1].speedup else float("inf"))
    changes: dict[str, object] = {"problem": problem.id, "message": f"case {case.name}: {verdict.message}"}
    if failed and case.role == "hidden":  # of which an agent learns nothing, whatever it was
        changes["stage"] = Stage.HIDDEN
        if verdict.status is Status.WRONG_VALUE:
            changes["status"] = Status.WRONG_HIDDEN
    checks = [*verdict.checks, *(_check(one, found) for one, found in judged)]
    checks += [
        Check(name=f"case-{name}", stage=Stage.STANDARD, passed=None, evidence={"dropped": reason})
        for name, reason in left_out.items()
    ]
    changes["checks"] = tuple(checks)
    changes["seeds"] = {**verdict.seeds, _SEEDS: {one.name: dict(found.seeds) for one, found in judged}}
    phases = {name for _, found in judged for name in found.seconds}
    changes["seconds"] = {
        name: round(sum(found.seconds.get(name, 0.0) for _, found in judged), 4) for name in sorted(phases)
    }
    return Verdict(**{**dict(verdict), **changes})


def failed_case(verdict: Verdict) -> str | None:
    """The name of the case that a verdict on several is about: the one that failed, or whose time it tells."""
    return verdict.message.removeprefix("case ").partition(":")[0] if _SEEDS in verdict.seeds else None


def _shown_first(judged: list[tuple[Case, Problem]]) -> list[tuple[Case, Problem]]:
    """The same cases, the first of those that are shown at the head where a hidden one was there."""
    first = next((index for index, (case, _) in enumerate(judged) if case.role != "hidden"), 0)
    return [judged[first], *judged[:first], *judged[first + 1 :]] if judged else []


def _check(case: Case, verdict: Verdict) -> Check:
    evidence: dict[str, JsonValue] = {"role": case.role, "status": verdict.status.value}
    if verdict.speedup is not None:
        evidence |= {
            "speedup": verdict.speedup.value, "latency_ms": verdict.latency_ms,
            "reference_latency_ms": verdict.reference_latency_ms,
        }  # fmt: skip
    stage = Stage.HIDDEN if case.role == "hidden" else verdict.stage or Stage.STANDARD
    return Check(name=f"case-{case.name}", stage=stage, passed=not ends(case, verdict), evidence=evidence)
