"""Peak memory of one forward in each runner, by the same formula, in an untimed pass; the runners end with it.

The submission's output of that call is compared like any other, or it could be lean by leaving the work out.
Not covered: a leaner way to the same output, taken in that call alone, which is not timed.

On a GPU it is what each runner's PyTorch allocator reports, a lower bound. The judge sees beside it what the device
gets back when a runner ends, and what was gone meanwhile: where that is more than the reported peak by more than it is
for the reference, libraries and code, that counts, and so does host memory that a device can reach (pinned, managed)
where it is more than the reference's. Nothing that a submission reports can make it less. On the CPU the judge reads
the growth of the resident set from /proc, and what processes beside the runner keep to themselves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .arm import REFERENCE_S, Arm, ArmError
from .checks import words_of
from .faults import SubmissionFault
from .plan import CONTEXT_BYTES
from .slots import Slots, copy_slots

if TYPE_CHECKING:
    from .job import Job

_METHODS = {
    "cuda": "inputs + the PyTorch allocator's peak over one forward (self-reported by each runner)",
    "device": "inputs + the reference's peak as its PyTorch allocator reports it; the submission's as the judge saw it",
    "cpu": "inputs + growth of the resident set over one forward, and what its other processes keep (seen by "
    "the judge)",
}
_UNSEEN_BYTES = 256 << 20
"""Held beyond the peak and the slack: kernels' code, a library's workspace."""
_MAPPED_BYTES, _PRIVATE_BYTES = 64 << 20, 512 << 20
"""Shared and private host memory beyond the reference's that is usual: the latter is code above all, compilers' too."""
_SLACK = 0.25
"""Of its peak an allocator may have taken more from the device, where the reference's has not taken more still."""
_LOOK_S = 0.0005
_RETURN_S, _SETTLED_S = 1.0, 0.02
"""So long at most, and so long without a change, is waited for what a device gets back: a driver may free the memory of
a process some time after that has ended."""
_MOST = 1 << 50
"""Beyond any device's: whole numbers of JSON have any length, and a float cannot hold them all."""
_LEAST_BYTES, _STIRRED_BYTES = 64 << 20, 32 << 20
"""Less than any context takes; and more than PyTorch's allocator has at hand."""


@dataclass
class Peak:
    """Of one runner, in bytes: by its allocator (inputs added), and what that had taken from the device."""

    peak: int
    reserved: int = 0
    growth: int = 0
    """By how much the device's free memory fell below that after the call, while it ran."""
    mapped: int = 0
    private: int = 0
    """Host memory that the runner maps shared, at most while the call ran, and what it has to itself after it."""


def measure_memory(job: Job) -> None:
    """Leaves `memory` in the job's result where the protocol asks for it and the machine shows it."""
    if not job.protocol["memory"]:
        return
    job.spares.stop()  # what the device gets back is to be one runner's
    if job.device == "cpu":  # what an earlier turn has left there need be no inputs
        copy_slots(job.store.masters, job.lent.inputs, 0, 1)
    job.prepare_timed(0, 1, expect=True)
    with job.submission_faults("memory"):
        submission = peak(job, "submission", job.lent, job.remaining(job.clock.call_s, "memory"))
    comparison = job.truth.judge_timed(0, 1, job.store.keep_snapshot())
    if not comparison.passed:
        raise SubmissionFault("WRONG_HIDDEN", "memory", words_of(comparison, "the call whose memory was measured"))
    # Last: what the reference had reserved then it ends with. A comparison may have it run again, and take more.
    with job.others_paused("reference"), job.reference_faults():
        reference = peak(job, "reference", job.trusted, REFERENCE_S)
    if reference is None or submission is None:
        job.flags.append("memory was not measured: /proc does not show the runners' peaks here")
        return
    method = job.device
    inputs, outputs = job.signature.inputs.slot_bytes, sum(leaf.nbytes for leaf in job.signature.outputs.leaves)
    submission.peak = max(submission.peak, least_peak(reference.peak, inputs, outputs))
    held: dict[str, int] = {}
    if job.device == "cuda":
        held, total = _end_runners(job, {"submission": submission, "reference": reference})
        reported = submission.peak - inputs
        unseen = max(
            unseen_bytes(held["submission"], reported, held["reference"], reference.peak - inputs),
            unseen_in_all(total, reported, reference.reserved),
        )
        if unseen > 0:
            job.flags.append(f"{unseen >> 20} MiB of device memory were held beyond what PyTorch's allocator reported")
            submission.peak = max(submission.peak + unseen, inputs + held["submission"])
            method = "device"
        pinned = pinned_bytes(submission, reference)
        if pinned > 0:
            job.flags.append(f"{pinned >> 20} MiB of pinned or other host memory were held beyond the reference's")
            submission.peak += pinned
            method = "device"
    job.result["memory"] = {
        "reference_peak_bytes": reference.peak,
        "submission_peak_bytes": submission.peak,
        "ratio": reference.peak / submission.peak,
        "method": _METHODS[method],
        "reference_device_bytes": held.get("reference"),
        "submission_device_bytes": held.get("submission"),
    }


def least_peak(reference_peak: int, inputs: int, outputs: int) -> int:
    """A submission's peak, at least: an output takes memory of its own where the reference's does, which one that is
    made in the slot does not."""
    return min(inputs + outputs, reference_peak)


def unseen_bytes(held: int, reported: int, reference_held: int, reference_reported: int) -> int:
    """What a submission held on the device beyond its reported peak and what is usual; 0 where that explains it."""
    slack = max(reference_held - reference_reported, int(_SLACK * reported)) + _UNSEEN_BYTES
    return max(0, held - reported - slack)


def pinned_bytes(submission: Peak, reference: Peak) -> int:
    """Host memory that may serve a device (pinned, managed), beyond the reference's and what is usual.

    Pages that were pinned where they lay are among what is private, where nobody can tell them from a library's.
    """
    mapped = submission.mapped - reference.mapped - _MAPPED_BYTES
    return max(0, mapped) + max(0, submission.private - reference.private - _PRIVATE_BYTES)


def unseen_in_all(total: int, reported: int, reference_reserved: int) -> int:
    """The same of what the device got back of all three runners, whenever it did: contexts and code are counted as more
    than they take, but whose memory it was need not be told apart."""
    usual = reference_reserved + int((1 + _SLACK) * reported) + 3 * CONTEXT_BYTES + 2 * _UNSEEN_BYTES
    return max(0, total - usual)


def peak(job: Job, role: str, slots: Slots, timeout_s: float) -> Peak | None:
    """Of one forward of that runner, on the masters of slot 0; None where the machine does not show it.

    Its output is in slot 0 of the snapshot. Raises ArmError.
    """
    arm, store = job.arm(role), job.store
    inputs = job.signature.inputs.slot_bytes
    with slots.lent_to(arm):
        if job.device == "cpu":
            # Brings in the pages that slot 0's first touch costs. A submission's is on earlier inputs: of those that
            # count it could keep the output for the call that is measured.
            if role != "submission":
                copy_slots(store.masters, slots.inputs, 0, 1)
            arm.ask("measure_memory", timeout_s=timeout_s)
            arm.ask("trim", timeout_s=timeout_s)
            copy_slots(store.masters, slots.inputs, 0, 1)
            slots.poison(0, 1)
            kept = arm.helper_bytes()  # only the runner gives back what it does not use
            before = arm.resident_peak_bytes() if arm.reset_resident_peak() else None
            arm.ask("measure_memory", timeout_s=timeout_s)
            after = arm.resident_peak_bytes()
            copy_slots(slots.outputs, store.snapshot, 0, 1)
            return None if before is None or after is None else Peak(inputs + kept + max(0, after - before))
        copy_slots(store.masters, slots.inputs, 0, 1)
        slots.poison(0, 1)
        job.synchronize()
        arm.ask("trim", timeout_s=timeout_s)  # what earlier calls, or the judge, have at hand is not this call's
        _stir()
        with _watched(arm) as extremes:
            reported = arm.ask("measure_memory", timeout_s=timeout_s)
            _stir()
            growth = max(0, free_bytes() - extremes.free)
        private = arm.private_bytes()
        copy_slots(slots.outputs, store.snapshot, 0, 1)
        job.synchronize()
    peak, reserved = reported.get("peak_bytes"), reported.get("reserved_bytes")
    if (
        type(peak) is not int
        or type(reserved) is not int
        or not 0 <= min(peak, reserved) <= max(peak, reserved) < _MOST
    ):
        raise ArmError("malformed", f"the {role} reported no peak")
    return Peak(inputs + peak, reserved, growth, extremes.mapped, private)


def _end_runners(job: Job, peaks: dict[str, Peak]) -> tuple[dict[str, int], int]:
    """Ends every runner; by role what the device got back beyond a context, and of all.

    What a context takes the trusted runners tell, which end together: one has nothing beside, the other what it says.
    """
    with job.reference_faults():
        job.arm("null").ask("trim", timeout_s=REFERENCE_S)  # it has an output at hand to copy from
    _stir()
    submission, reference = peaks["submission"], peaks["reference"]
    begun = free_bytes()
    job.stop_arms("submission")  # what comes late is the others': never too much for the submission
    held = given_back(begun, _LEAST_BYTES + submission.reserved)
    before = free_bytes()
    job.stop_arms("reference", "null")
    others = given_back(before, 2 * _LEAST_BYTES + reference.reserved)
    context = max(0, others - reference.reserved) // 2
    by_role = {"submission": max(0, held - context), "reference": max(0, others - 2 * context)}
    total = free_bytes() - begun + submission.growth
    return {role: nbytes + peaks[role].growth for role, nbytes in by_role.items()}, total


def given_back(before: int, at_least: int) -> int:
    """By how much the device's free memory has grown since `before`, at least `at_least` if that comes in time."""
    started = changed = time.monotonic()
    free = free_bytes()
    while (now := time.monotonic()) < started + _RETURN_S:
        if free - before >= at_least and now - changed >= _SETTLED_S:
            break
        time.sleep(_LOOK_S)
        _stir()
        if (last := free_bytes()) != free:
            free, changed = last, now
    return free - before


def _stir() -> None:
    """Takes a little of the device's memory and gives it back: a driver may count what it has cleared only then."""
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(_STIRRED_BYTES, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()


@dataclass
class _Extremes:
    free: int
    mapped: int


@contextlib.contextmanager
def _watched(arm: Arm) -> Iterator[_Extremes]:
    """Looks at the device's free memory, and at what the runner maps of the host's, again and again meanwhile."""
    extremes, ended = _Extremes(free_bytes(), arm.mapped_bytes()), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            extremes.free = min(extremes.free, free_bytes())
            extremes.mapped = max(extremes.mapped, arm.mapped_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield extremes
    finally:
        ended.set()
        thread.join()
        extremes.mapped = max(extremes.mapped, arm.mapped_bytes())


def free_bytes() -> int:
    return torch.cuda.mem_get_info()[0]
