"""Scripted stand-ins for the judge: verdicts of every status, and an evaluator that returns them in order.

`tests` is a package, so that any test module, in whatever folder below `tests/`, may write

    from tests.fakes import ScriptedEvaluator, make_problem, make_verdict

Nothing here runs code of a submission; nothing here says how the real evaluator behaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from kbenv.evaluator import check_judged
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol, get_protocol
from kbenv.verdict import (
    Check,
    Hardware,
    Interval,
    Isolation,
    KernelShare,
    Measurement,
    Memory,
    Plausibility,
    Provenance,
    Stage,
    Status,
    SubmissionFacts,
    Verdict,
)

RELU_SOURCE = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies ReLU element-wise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


rows = 64
columns = 128


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
'''

SUBMISSION_SOURCE = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""

STAGES: dict[Status, Stage | None] = {
    Status.PASSED: None,
    Status.FORMAT_ERROR: Stage.FORMAT,
    Status.LOAD_ERROR: Stage.LOAD,
    Status.COMPILE_ERROR: Stage.LOAD,
    Status.RUNTIME_ERROR: Stage.STANDARD,
    Status.ILLEGAL_ACCESS: Stage.STANDARD,
    Status.WRONG_SHAPE: Stage.STANDARD,
    Status.WRONG_DTYPE: Stage.STANDARD,
    Status.WRONG_VALUE: Stage.STANDARD,
    Status.WRONG_HIDDEN: Stage.HIDDEN,
    Status.TIMEOUT: Stage.STANDARD,
    Status.OUT_OF_MEMORY: Stage.STANDARD,
    Status.TAMPERED: Stage.STANDARD,
    Status.NO_CUSTOM_KERNEL: Stage.PROVENANCE,
}
"""Where `make_verdict` lets each status fail unless told otherwise."""

DETAILS: dict[Status, str] = {
    Status.LOAD_ERROR: (
        'Traceback (most recent call last):\n  File "submission.py", line 3\nSyntaxError: invalid syntax'
    ),
    Status.COMPILE_ERROR: "kernel.cpp:7:5: error: expected ‘;’ before ‘return’",
    Status.RUNTIME_ERROR: (
        'Traceback (most recent call last):\n  File "submission.py", line 9, in forward\n'
        "RuntimeError: expected a contiguous tensor"
    ),
    Status.ILLEGAL_ACCESS: "CUDA error: an illegal memory access was encountered",
    Status.OUT_OF_MEMORY: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 GiB",
}

_COMPARISONS: dict[Status, dict[str, Any]] = {
    Status.WRONG_VALUE: {
        "max_abs_error": 0.5,
        "max_rel_error": 1.25,
        "mismatched": 31,
        "elements": 8192,
        "first_mismatch": {"output": 0, "index": [3, 17], "expected": 0.0, "found": -0.5},
    },
    Status.WRONG_SHAPE: {"output": 0, "expected": [64, 128], "found": [64, 1]},
    Status.WRONG_DTYPE: {"output": 0, "expected": "torch.float32", "found": "torch.float16"},
}


def make_problem(**overrides: Any) -> Problem:
    """A small ReLU problem, `core/level1/relu`."""
    fields: dict[str, Any] = {"id": "core/level1/relu", "name": "relu", "level": 1, "source": RELU_SOURCE}
    return Problem(**(fields | overrides))


def make_verdict(status: Status | str = Status.PASSED, **overrides: Any) -> Verdict:
    """A consistent verdict of `status`; `overrides` replace its fields.

    `speedup` and `memory` may be plain numbers: the intervals, latencies and peak bytes are made to match.
    """
    status = Status(status)
    stage = overrides.get("stage", STAGES[status])
    fields: dict[str, Any] = {
        "problem": "core/level1/relu",
        "status": status,
        "stage": stage,
        "message": f"{status}: scripted",
        "detail": DETAILS.get(status),
        "submission": SubmissionFacts(
            sha256="ab" * 32,
            source_bytes=len(SUBMISSION_SOURCE),
            backend="python",
            custom_kernel_evidence=() if status is Status.NO_CUSTOM_KERNEL else ("load_inline",),
        ),
        "checks": make_checks(status, stage),
        "isolation": Isolation(
            sandbox="process",
            level="full",
            uid=65000,
            namespaces=("net", "pid", "mount"),
            seccomp=True,
            missing=(),
        ),
        "protocol": get_protocol("verified", require_custom_kernel=status is Status.NO_CUSTOM_KERNEL),
        "hardware": Hardware(
            device="cpu",
            name="Scripted CPU",
            memory_bytes=8 << 30,
            driver=None,
            multiprocessors=None,
            l2_bytes=None,
            cpu="Scripted CPU",
            cpu_count=2,
        ),
        "software": {"torch": "2.9.0", "cuda": None},
        "seconds": {"build": 1.5, "correctness": 0.25, "timing": 0.5},
        "weights": "none",
    }
    if status is Status.PASSED or (status is Status.NO_CUSTOM_KERNEL and "speedup" in overrides):
        fields |= _timed(2.0) | {"memory": _memory(1.0)}
    if isinstance(overrides.get("speedup"), (int, float)):
        overrides = _timed(float(overrides["speedup"])) | {k: v for k, v in overrides.items() if k != "speedup"}
    if isinstance(overrides.get("memory"), (int, float)):
        overrides = overrides | {"memory": _memory(float(overrides["memory"]))}
    return Verdict(**(fields | overrides))


def make_checks(status: Status, stage: Stage | None) -> tuple[Check, ...]:
    """The checks a judge would have made up to `stage`, the last of them failed unless the status is a right one."""
    if stage in (Stage.FORMAT, Stage.LOAD):
        return ()
    right = {"max_abs_error": 0.0, "max_rel_error": 0.0, "mismatched": 0, "elements": 8192}
    standard = [
        Check(name=f"standard-{trial}", stage=Stage.STANDARD, passed=True, evidence=right) for trial in range(5)
    ]
    if stage is Stage.STANDARD:
        failed = Check(name="standard-1", stage=stage, passed=False, evidence=_COMPARISONS.get(status, {}))
        return (standard[0], failed)
    hidden = [
        Check(name=f"hidden-D{number}", stage=Stage.HIDDEN, passed=True, evidence=right) for number in range(1, 5)
    ]
    if stage is Stage.HIDDEN:
        wrong = {"max_abs_error": 7.5, "max_rel_error": 1.0, "mismatched": 4096, "elements": 8192}
        return (*standard, *hidden[:3], Check(name="hidden-D4", stage=stage, passed=False, evidence=wrong))
    timed = Check(name="timed-outputs", stage=Stage.TIMING, passed=stage is not Stage.TIMING, evidence=right)
    if stage is Stage.TIMING:
        return (*standard, *hidden, timed)
    inputs = Check(name="inputs-unchanged", stage=Stage.MEMORY, passed=stage is not Stage.MEMORY)
    if stage is Stage.MEMORY:
        return (*standard, *hidden, timed, inputs)
    custom = Check(
        name="custom-kernel",
        stage=Stage.PROVENANCE,
        passed=status is Status.PASSED,
        evidence={"evidence": ["load_inline"] if status is Status.PASSED else []},
    )
    return (*standard, *hidden, timed, inputs, custom)


def _timed(speedup: float) -> dict[str, Any]:
    latency_ms = 1.0
    reference_ms = latency_ms * speedup
    return {
        "speedup": Interval(value=speedup, low=speedup * 0.95, high=speedup * 1.05),
        "latency_ms": latency_ms,
        "reference_latency_ms": reference_ms,
        "clock": "judge-open",
        "measurement": Measurement(
            calls_per_turn=4,
            turns=20,
            runner_pairs=4,
            slots=4,
            l2_cold=True,
            submission_turns_ms=(latency_ms,) * 20,
            reference_turns_ms=(reference_ms,) * 20,
            null_turn_ms=0.1,
            reference_alone_ms=reference_ms,
            submission_call_ms=None,
            reference_call_ms=None,
            submission_single_call_ms=None,
            reference_single_call_ms=None,
            single_call_counts=False,
            submission_event_ms=None,
            reference_event_ms=None,
        ),
    }


def _memory(ratio: float) -> Memory:
    submission = 1 << 20
    return Memory(
        submission_peak_bytes=submission,
        reference_peak_bytes=round(submission * ratio),
        ratio=ratio,
        method="scripted",
    )


def make_plausibility(floor_ms: float | None, **overrides: Any) -> Plausibility:
    """A floor for a call, and rates of some device."""
    fields: dict[str, Any] = {
        "floor_ms": floor_ms, "operations_ms": 0.0, "bytes": 1 << 30, "flops": 0, "bandwidth": 4e12, "rate": 4e14,
        "cache_bytes": 60 << 20, "below_floor": False,
    }  # fmt: skip
    return Plausibility(**(fields | overrides))


def make_provenance(custom_share: float, **overrides: Any) -> Provenance:
    """What ran: one custom kernel with that share of the time."""
    kernel = KernelShare(name="own", share=custom_share, count=1, kind="custom")
    fields: dict[str, Any] = {
        "custom_share": custom_share, "kernels": (kernel,), "library_calls": {}, "method": "scripted",
    }  # fmt: skip
    return Provenance(**(fields | overrides))


class ScriptedEvaluator:
    """Returns the given verdicts (or raises the given exceptions) in order; the last one again and again.

    Satisfies the part of `kbenv.evaluator.Evaluator` that environments use. `sources` lists what it was asked to
    judge, `closed` whether `close` was called.
    """

    def __init__(
        self,
        verdicts: Iterable[Verdict | Exception] = (),
        *,
        protocol: Protocol | None = None,
        device: str = "cpu",
        backend: str = "auto",
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self.verdicts = list(verdicts) or [make_verdict()]
        self.protocol = protocol or get_protocol()
        self.device = device
        self.sandbox_note: str | None = None
        self.backend = backend
        self.on_phase = on_phase
        self.problems: list[Problem | str] = []
        self.sources: list[str] = []
        self.seeds: list[Any] = []
        self.format_errors: list[str] = []
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def admit(self, problem: Problem | str) -> Problem:
        problem = make_problem(id=problem) if isinstance(problem, str) else problem
        check_judged(problem, self.protocol)
        return problem

    def abort(self) -> None:
        self.closed = True

    def evaluate(self, problem: Problem | str, source: str, *, seeds: Any = None) -> Verdict:
        self.problems.append(problem)
        self.sources.append(source)
        self.seeds.append(seeds)
        if self.on_phase is not None:
            self.on_phase("judging")
        outcome = self.verdicts[min(len(self.sources), len(self.verdicts)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        self.format_errors.append(message)
        return make_verdict(Status.FORMAT_ERROR, message=message)
