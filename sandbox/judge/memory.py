"""Peak memory of one forward in each runner, by the same formula, in an untimed pass.

On a GPU it is what each runner's PyTorch allocator reports: a lower bound, and self-reported. On the CPU the judge
reads the growth of the resident set from /proc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arm import ArmError
from .slots import Slots, copy_slots

if TYPE_CHECKING:
    from .job import Job

_REFERENCE_S = 300.0
_METHODS = {
    "cuda": "inputs + the PyTorch allocator's peak over one forward (self-reported by each runner)",
    "cpu": "inputs + growth of the resident set over one forward (seen by the judge)",
}


def measure_memory(job: Job) -> None:
    """Leaves `memory` in the job's result where the protocol asks for it and the machine shows it."""
    if not job.protocol["memory"]:
        return
    with job.reference_faults():
        reference = peak(job, "reference", job.trusted, _REFERENCE_S)
    with job.submission_faults("memory"):
        submission = peak(job, "submission", job.lent, job.remaining(job.clock.call_s, "memory"))
    if reference is None or submission is None:
        job.flags.append("memory was not measured: /proc does not show the runners' peaks here")
        return
    job.result["memory"] = {
        "reference_peak_bytes": reference,
        "submission_peak_bytes": submission,
        "ratio": reference / submission,
        "method": _METHODS[job.device],
    }


def peak(job: Job, role: str, slots: Slots, timeout_s: float) -> int | None:
    """Of one forward of that runner, its inputs included; None where the machine does not show it. Raises ArmError."""
    arm = job.arm(role)
    inputs = job.signature.inputs.slot_bytes
    with slots.lent_to(arm):
        copy_slots(job.store.masters, slots.inputs, 0, 1)
        job.synchronize()
        if job.device == "cpu":
            arm.ask("measure_memory", timeout_s=timeout_s)  # brings in the pages that slot 0's first touch costs
            arm.ask("trim", timeout_s=timeout_s)
            before = arm.resident_peak_bytes() if arm.reset_resident_peak() else None
            arm.ask("measure_memory", timeout_s=timeout_s)
            after = arm.resident_peak_bytes()
            return None if before is None or after is None else inputs + max(0, after - before)
        reported = arm.ask("measure_memory", timeout_s=timeout_s).get("peak_bytes")
    if type(reported) is not int or reported < 0:
        raise ArmError("malformed", f"the {role} reported no peak")
    return inputs + reported
