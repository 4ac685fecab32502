"""Variants of the reference, timed and measured: eager under other TF32 flags, and compiled.

It is all trusted code, and the judge's clock takes it as it takes a reference before any submission exists: turns over
fresh inputs, the null runner's turns subtracted. Eager variants are one process whose flags change from turn to turn,
so that their ratio holds nothing but the flags. The compiled one has a process of its own, and two processes of the
same code differ by a percent or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..wire import Message
from .arm import ArmError
from .memory import Peak, peak
from .place import BASELINE
from .slots import copy_slots
from .statistics import centre
from .timing import Series, Timer

if TYPE_CHECKING:
    from .job import Job

_VARIANT_S = 300.0
_PAIRS = 3
"""As many turns as a job has over so many pairs of runners, from one: there is no second pair to average over."""


def measure_eager(job: Job, flags: dict[str, dict[str, bool]]) -> Message:
    """Latency and memory of the reference by name of its flags, in turns that alternate."""
    timer = Timer(job)
    timer.warm_up(("reference", "null"), {})
    warming = {name: Series(job.plan.slots, gated=False) for name in flags}
    for name in flags:  # loads that variant's kernels, which waits for the device
        _take_turns(job, timer, {name: warming[name]}, flags)

    def measure() -> dict[str, Series]:
        series = {name: Series(timer.calls, timer.gated) for name in flags}
        for _ in range(_PAIRS * timer.turns()):
            _take_turns(job, timer, series, flags)
        return series

    series = timer.behind_gate(measure)
    found = {}
    for name in flags:
        with job.reference_faults():
            reported = job.arm("reference").ask("tf32", timeout_s=_VARIANT_S, tf32=flags[name])["tf32"]
            held = peak(job, "reference", job.trusted, _VARIANT_S)
        found[name] = _found(timer, series[name].latencies("reference"), held) | {"tf32": reported}
    return found


def _take_turns(job: Job, timer: Timer, series: dict[str, Series], flags: dict[str, dict[str, bool]]) -> None:
    """One turn of the reference under each name's flags, and of the null runner, in random order on equal inputs."""
    calls = next(iter(series.values())).calls
    first = timer.next_slots(calls)
    job.prepare_timed(first, calls, expect=False)
    for name in timer.order.sample([*series, None], len(series) + 1):
        if name is not None:
            with job.reference_faults():
                job.arm("reference").ask("tf32", timeout_s=_VARIANT_S, tf32=flags[name])
        arm = "null" if name is None else "reference"
        into = list(series.values()) if name is None else [series[name]]
        turn = timer.turn(arm, first, into[0], with_events=False)
        for one in into:
            one.turns[arm].append(turn.ms)
            one.copies[arm].append(turn.copy_ms)


def _found(timer: Timer, latencies: list[float], held: Peak | None) -> Message:
    return {
        "latency_ms": centre(latencies, timer.statistic), "turns_ms": latencies,
        "clock": "judge-gated" if timer.gated else "judge-open", "error": None,
        "peak_bytes": None if held is None else held.peak,
    }  # fmt: skip


def measure_compiled(job: Job) -> None:
    """Before the submission starts: leaves the latency of the compiled reference in the job's result."""
    found = measure_compilation(job, job.protocol["tf32"]["reference_timing"])
    job.result["compiled_reference_latency_ms"] = found["latency_ms"]
    if found["error"] is not None:
        job.flags.append(f"torch.compile of the reference has no latency: {found['error']}")


def measure_compilation(job: Job, flags: dict[str, bool]) -> Message:
    """Latency and memory of the reference under torch.compile; what that raises is its `error`."""
    found: Message = {
        "latency_ms": None, "turns_ms": [], "clock": None, "peak_bytes": None, "tf32": {}, "error": None,
    }  # fmt: skip
    try:
        arm = job.start_arm(BASELINE)
        loaded = arm.ask(
            "load", timeout_s=_VARIANT_S, problem=job.problem["source"], source=None, entry="Model",
            seed=job.seeds.construction, precision=job.protocol["precision"], tf32=flags, redraw=job.redraw(None),
        )  # fmt: skip
        found["tf32"] = loaded["tf32"]
        job.prepare_timed(0, 1, expect=False)
        with job.trusted.lent_to(arm):
            copy_slots(job.store.masters, job.trusted.inputs, 0, 1)
            job.synchronize()
            arm.ask("compile", timeout_s=job.protocol["limits"]["build_s"])
        found |= _time(job)
    except ArmError as e:
        found["error"] = e.message
    finally:
        job.stop_arm(BASELINE)
    return found


def _time(job: Job) -> Message:
    timer = Timer(job)
    arms = (BASELINE, "null")
    timer.warm_up(arms, {})

    def measure() -> Series:
        series = Series(timer.calls, timer.gated)
        for _ in range(_PAIRS * timer.turns()):
            timer.round(series, arms)
        return series

    series = timer.behind_gate(measure)
    return _found(timer, series.latencies(BASELINE), peak(job, BASELINE, job.trusted, _VARIANT_S))
