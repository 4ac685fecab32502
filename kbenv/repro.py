"""A standalone script that shows what a verdict says, with PyTorch alone: for a bug report, or for doubters.

It holds both sources, the seeds, the inputs' distribution, the tolerance and the TF32 flags of the check that failed;
for a credited verdict, of the first standard trial, and a simple clock. It does not hold what makes the judge the
judge: no sandbox, no secret perturbations, no probes.
"""

from __future__ import annotations

import hashlib
import re

from kbenv.case import failed_case
from kbenv.errors import UsageError
from kbenv.problems.problem import Problem
from kbenv.prompts import render
from kbenv.protocol import TF32
from kbenv.sandbox.judge.seeds import DRAWN_ON_DEVICE
from kbenv.verdict import SEEDS, Check, Stage, Verdict

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_STANDARD = re.compile(r"standard-(\d+)")


def render_script(verdict: Verdict, problem: Problem, source: str) -> str:
    """The script.

    Args:
        verdict: what to show.
        problem: the one that it is on.
        source: the submission's.

    Raises:
        UsageError: the source is not the one that was judged, or the check that failed cannot be shown in this way.
    """
    found = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    if found != verdict.submission.sha256:
        raise UsageError(
            f"the verdict is on a source with SHA-256 {verdict.submission.sha256[:12]}...; found {found[:12]}...: "
            "give the source that was judged"
        )
    if verdict.problem != problem.id:
        raise UsageError(f"the verdict is on {verdict.problem}; found {problem.id}")
    if verdict.stage is Stage.FORMAT:
        raise UsageError("the answer held no code: there is nothing to run")
    if missing := SEEDS - set(verdict.seeds):
        raise UsageError(f"the verdict does not record every seed ({', '.join(sorted(missing))}): nothing was judged")
    if (case := failed_case(verdict)) is not None:
        problem = problem.for_case(case)
    protocol = verdict.protocol
    failed = next((check for check in verdict.checks if check.passed is False), None)
    seed, factor, purpose = _inputs(verdict, failed)
    device = "cpu" if verdict.hardware is None or verdict.hardware.device == "cpu" else "cuda"
    standard = failed is None or failed.stage is Stage.STANDARD
    on_cpu = standard and protocol.drawing == "cpu" and DRAWN_ON_DEVICE not in verdict.flags
    speedup = verdict.speedup if verdict.credited else None
    summary = f", {speedup.value:.3g}x [{speedup.low:.3g}, {speedup.high:.3g}]" if speedup is not None else ""
    return render(
        "repro.j2",
        problem=verdict.problem,
        status=verdict.status.value,
        summary=summary,
        purpose=purpose,
        device=device,
        dtype=_DTYPES[protocol.precision],
        evaluation=problem.contract.mode == "eval",
        construction_seed=verdict.seeds["construction"],
        input_seed=seed,
        factor=factor,
        draw_on_device=device == "cuda" and not on_cpu,
        absolute=protocol.tolerance.absolute,
        relative=protocol.tolerance.relative,
        tf32={
            "reference": _flags(protocol.tf32.reference_correctness),
            "baseline": _flags(protocol.tf32.reference_timing),
            "submission": _flags(protocol.tf32.submission),
        },
        reference=_literal(problem.source_for(device)),
        submission=_literal(source),
        timed=verdict.credited,
        measured=summary.removeprefix(", ") + " of device time" if verdict.clock == "judge-gated" else summary[2:],
    )


def _inputs(verdict: Verdict, failed: Check | None) -> tuple[int, float, str]:
    """Seed and factor of the inputs to show, and in words why these."""
    seeds, protocol = verdict.seeds, verdict.protocol
    standard = _list(seeds["standard"])
    redrawn = (
        " (The judge also drew constant parameters anew, which this does not.)" if protocol.redraw_parameters else ""
    )
    if failed is None or failed.stage is Stage.PROVENANCE:
        if verdict.stage is Stage.LOAD:
            return standard[0], 1.0, f"It shows how building fails: {_line(verdict.message)}"
        return standard[0], 1.0, f"It shows the first standard trial, and the speed.{redrawn}"
    if match := _STANDARD.fullmatch(failed.name):
        return standard[int(match[1])], 1.0, f"It shows how {failed.name} fails: {_line(verdict.message)}{redrawn}"
    for hidden, seed in zip(protocol.hidden_inputs, _list(seeds["hidden"]), strict=True):
        if failed.name == f"hidden-{hidden.name}":
            return seed, hidden.factor, f"It shows how {failed.name} fails: {_line(verdict.message)}{redrawn}"
    raise UsageError(
        f"the check {failed.name} is on inputs that the judge changes in ways of its own; show it with "
        "`kbenv eval --replay` in the place of a script"
    )


def _list(value: object) -> list[int]:
    assert isinstance(value, list)
    return [int(item) for item in value]


def _line(message: str) -> str:
    """One line that can stand in a docstring."""
    text = " ".join(message.split()).replace("\\", "/").replace('"""', "'''")
    return text[:200]


def _flags(flags: TF32) -> tuple[bool, bool]:
    return flags.matmul, flags.conv


def _literal(source: str) -> str:
    """The source as a Python literal that stays readable where it can."""
    plain = all(line.isprintable() for line in source.split("\n"))
    if plain and "'''" not in source and "\\" not in source and not source.endswith("'"):
        return f"'''\\\n{source}'''"
    lines = source.splitlines(keepends=True)
    return "(\n" + "".join(f"    {line!r}\n" for line in lines) + ")"
