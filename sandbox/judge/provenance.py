"""What the submission's forward runs, as its own runner reports it, in an untimed pass after everything else.

Self-reported, and so no fault of a submission's: where the profiler gives nothing (it fails, the device refuses it, the
runner dies of it) a flag says so and the source's own evidence is all there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..wire import Message
from .arm import ArmError
from .faults import SubmissionFault
from .slots import copy_slots

if TYPE_CHECKING:
    from .job import Job

_CALLS = 3
_LONG_CALL_MS = 500.0
_LONGEST_S = 60.0
_LONGEST_US = 1e12
_MOST_NAMES = 64
_NAME_CHARACTERS = 400
_METHODS = {
    "cuda": "device time of kernels in {} calls of forward, from PyTorch's profiler in the submission's process",
    "cpu": "time of PyTorch's operators in {} calls of forward, from PyTorch's profiler in the submission's process; "
    "the rest is the submission's own code, the interpreter and the profiler: an upper bound of custom code",
}


def looks_at_kernels(job: Job) -> bool:
    """Whether floors are taken and kernels traced: on a CPU, with a calibrated tolerance, for a share, on request."""
    protocol = job.protocol
    asked = "kernels" in protocol["diagnostics"] or protocol["custom_share_at_least"] is not None
    return job.device == "cpu" or protocol["calibration"] is not None or asked


def trace_submission(job: Job) -> None:
    """Leaves `trace` in the job's result: kernels ([name, share, count]), outside (a share, or None), method."""
    calls = 1 if job.submission_ms > _LONG_CALL_MS else _CALLS
    try:
        report = _ask(job, calls)
    except (ArmError, MemoryError, SubmissionFault) as e:
        trace, reason = None, str(e) or type(e).__name__
        if job.arm("submission").ended:
            job.recreate_submission("provenance")  # its memory is still to be measured
    else:
        trace, reason = read_trace(report), "the profiler saw nothing run"
    if trace is None:
        job.flags.append(f"what ran was not measured: {printable(reason)[:200]}")
    else:
        job.result["trace"] = trace | {"method": _METHODS[job.device].format(calls)}


def _ask(job: Job, calls: int) -> Message:
    arm, slots = job.arm("submission"), job.lent
    usual_s = _LONGEST_S + 2 * calls * min(job.submission_ms, job.clock.call_s * 1e3) / 1e3
    timeout_s = job.remaining(usual_s, "provenance")
    with slots.lent_to(arm):
        copy_slots(job.store.masters, slots.inputs, 0, 1)
        job.synchronize()
        return arm.ask("trace", timeout_s=timeout_s, calls=calls)


def read_trace(report: Any) -> Message | None:
    """A runner's report with shares instead of times; None when it is empty or of another form."""
    total_us, outside_us, kernels = (report.get(name) for name in ("total_us", "outside_us", "kernels"))
    if not (_is_time(total_us) and total_us > 0 and isinstance(kernels, list) and len(kernels) <= _MOST_NAMES):
        return None
    if not (outside_us is None or _is_time(outside_us)):
        return None
    read = []
    for kernel in kernels:
        if not (isinstance(kernel, list) and len(kernel) == 3):
            return None
        name, time_us, count = kernel
        if not (isinstance(name, str) and _is_time(time_us) and type(count) is int and 0 < count < 1 << 40):
            return None
        read.append([printable(name)[:_NAME_CHARACTERS], min(1.0, time_us / total_us), count])
    outside = None if outside_us is None else min(1.0, outside_us / total_us)
    return {"kernels": read, "outside": outside}


def printable(text: str) -> str:
    """On one line: a submission may have chosen the words."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _is_time(value: Any) -> bool:
    """Whole numbers of JSON have any length: what no float can hold is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LONGEST_US
