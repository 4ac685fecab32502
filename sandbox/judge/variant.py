"""One variant of the reference, such as the compiled one, timed and measured in a process of its own.

It is trusted code: the judge's clock takes it as it takes a reference before any submission exists, in turns over fresh
inputs with the null runner's turns subtracted. One process, so that the number holds the one or two percent by which
two processes of the same code differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..wire import Message
from .arm import ArmError
from .memory import peak
from .slots import copy_slots
from .statistics import centre
from .timing import BASELINE, Series, Timer

if TYPE_CHECKING:
    from .job import Job

_VARIANT_S = 300.0


def measure_compiled(job: Job) -> None:
    """Before the submission starts: leaves the latency of the compiled reference in the job's result."""
    found = measure_variant(job, flags=job.protocol["tf32"]["reference_timing"], compiled=True)
    job.result["compiled_reference_latency_ms"] = found["latency_ms"]
    if found["error"] is not None:
        job.flags.append(f"torch.compile of the reference has no latency: {found['error']}")


def measure_variant(job: Job, *, flags: dict[str, bool], compiled: bool) -> Message:
    """Latency and memory of the reference under `flags`, compiled or not; what the variant raises is its `error`."""
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
        job.prepare_timed(0, 1)
        if compiled:
            with job.trusted.lent_to(arm):
                copy_slots(job.store.masters, job.trusted.inputs, 0, 1)
                job.synchronize()
                arm.ask("compile", timeout_s=job.protocol["limits"]["build_s"])
        found |= _time(job)
        found["peak_bytes"] = peak(job, BASELINE, job.trusted, _VARIANT_S)
    except ArmError as e:
        found["error"] = e.message
    finally:
        job.stop_arm(BASELINE)
    return found


def _time(job: Job) -> dict[str, Any]:
    timer = Timer(job)
    arms = (BASELINE, "null")
    timer.warm_up(arms, {})
    series = Series(timer.calls, timer.gated)
    for _ in range(timer.turns()):
        timer.round(series, arms)
    turns = series.latencies(BASELINE)
    return {
        "latency_ms": centre(turns, timer.statistic), "turns_ms": turns,
        "clock": "judge-gated" if timer.gated else "judge-open",
    }  # fmt: skip
