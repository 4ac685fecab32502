"""The checks of a job: standard trials, then the hidden ones, each a call on inputs that the submission has not seen.

What a standard trial shows is told to the agent; of the hidden ones it learns only that one failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .anatomy import describe
from .compare import Comparison, count_nonfinite, relative_difference, same_bytes
from .faults import InfrastructureFault, SubmissionFault
from .own_rule import rule_of
from .presence import UNSEEN
from .probe import apply_probe
from .seeds import DRAWN_ON_DEVICE

if TYPE_CHECKING:
    from .job import Job

_RANDOM = 1e-3
"""Relative difference of two equal calls beyond which a reference is called random: atomics stay below 1e-5."""
_LITTLE_LOSS, _USUAL_LOSSES = 1e-5, 4.0
"""Less than what calibrated tolerances allow of the values anyway, or little more than on unchanged draws (their loss
at twice the reference's error): timed inputs may be changed in that way, too. Without the second, a submission that is
off on purpose, just enough to be looked at closely, would have them left as they are."""
_CALIBRATED = 2
"""Of the standard trials, before the submission's output is seen; of others how sure they are is asked where what these
have shown does not settle the matter."""
_KEPT_BYTES = 1 << 26
"""Of the first trial's outputs; whether larger ones vary is the audit's to say."""


class Checks:
    """Of one job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        job.truth = rule_of(job)
        self._nonfinite_allowed = False
        """Whether the reference's own output held NaN or infinity in a standard trial."""
        self._usual_loss = 0.0
        """On inputs as the problem draws them: see Truth.loss."""

    def standard_trials(self) -> None:
        """Raises SubmissionFault at the first that fails; InfrastructureFault where the reference can judge nothing."""
        job = self._job
        first: torch.Tensor | None = None
        varies = False
        on_device = job.on_device and job.protocol["drawing"] == "device"
        for trial, seed in enumerate(job.seeds.standard):
            slot = trial % job.plan.slots
            on_device = self._draw(seed, slot, on_device=on_device)
            job.expect_exactly(slot, calls=1)
            self._nonfinite_allowed |= count_nonfinite(job.store.expected, slot, job.device) > 0
            if trial == 0:
                self._look_for_randomness(slot)
            expected = job.store.expected.slot(slot)
            if first is None:
                first = expected[:_KEPT_BYTES].clone()
            varies = varies or len(expected) > _KEPT_BYTES or not same_bytes(first, expected)
            calibrated = trial < _CALIBRATED
            if calibrated:
                if (reason := job.truth.calibrate(slot)) is not None:
                    raise InfrastructureFault(
                        "reference",
                        f"{reason}: nothing can be held against it; choose another problem or --protocol verified",
                    )
                self._usual_loss = max(self._usual_loss, job.truth.loss())
            name = f"standard-{trial}"
            try:
                # the last as timed calls are, so that what fails there alone is told
                last = trial == len(job.seeds.standard) - 1
                job.call_submission("standard", first=slot, calls=1, gated=False, apart=last)
            except SubmissionFault as fault:
                evidence = {"error": fault.message}
                job.checks.append({"name": name, "stage": "standard", "passed": False, "evidence": evidence})
                self._explain_read_only_input(fault, slot)
                raise
            comparison = job.truth.judge(slot, with_ceiling=True, calibrated=calibrated)
            if isinstance(comparison, str):
                text = f"{comparison}, too much to judge by; choose another problem, or --protocol verified"
                raise InfrastructureFault("reference", text)
            job.record(name, "standard", comparison, **({} if comparison.passed else self._anatomy(comparison)))
            if not comparison.passed:
                words = words_of(comparison, f"standard trial {trial}")
                if last and self._needs_inputs_afterwards(slot):
                    words = (
                        "the output is right only as long as the inputs are there: forward returns its input, a part "
                        "of it, or something still to be computed, where the reference returns new memory; return a "
                        "new tensor, computed"
                    )
                raise SubmissionFault("WRONG_VALUE", "standard", words)
        if job.device == "cpu" and not job.clock.sees_memory:
            job.flags.append(UNSEEN)
        job.keep_printed()
        if not varies and job.truth.calibrated and len(job.seeds.standard) > 1:
            raise InfrastructureFault(
                "reference",
                "the reference's output is the same whatever goes in, so that nothing can be learned about a kernel; "
                "choose another problem, or --protocol verified",
            )

    def _needs_inputs_afterwards(self, slot: int) -> bool:
        """Whether an output that is wrong without the inputs is right as long as they are there."""
        job = self._job
        if not job.clock.hides_inputs:
            return False
        with contextlib.suppress(SubmissionFault):
            job.call_submission("standard", first=slot, calls=1, gated=False)
            again = job.truth.judge(slot, with_ceiling=True)
            return isinstance(again, Comparison) and again.passed
        return False

    def _draw(self, seed: int, slot: int, *, on_device: bool) -> bool:
        """Draws a standard trial's inputs; returns whether on the device, as asked or since there is no other way.

        A get_inputs that launches Triton kernels runs nowhere else.
        """
        job = self._job
        try:
            job.prepare([seed], first=slot, on_device=on_device, expect=False)
        except InfrastructureFault as fault:
            if on_device or not job.on_device or fault.kind != "reference" or job.arm("reference").ended:
                raise
            job.flags.append(DRAWN_ON_DEVICE)
            job.prepare([seed], first=slot, on_device=True, expect=False)
            return True
        return on_device

    def _look_for_randomness(self, slot: int) -> None:
        """Runs the reference again on the same inputs: one that disagrees with itself can match nothing."""
        job = self._job
        job.call_reference("reference_correctness", first=slot, calls=1)
        difference = relative_difference(job.store.expected, job.store.snapshot, slot, job.device)
        job.result["reference_random"] = difference > _RANDOM
        if difference > _RANDOM:
            job.flags.append("the reference disagrees with itself on equal inputs: its forward is random")

    def _explain_read_only_input(self, fault: SubmissionFault, slot: int) -> None:
        """An honest in-place write ends in a bare fault; once more with writable inputs tells whether that was it."""
        job = self._job
        if fault.status != "ILLEGAL_ACCESS" or job.plan.exclusive:
            return
        writable = job.open_slots(writable=True)
        readable, job.lent = job.lent, writable
        try:
            job.recreate_submission("standard")
            job.call_submission("standard", first=slot, calls=1, gated=False)
        except SubmissionFault as second:
            if second.status == "TAMPERED":
                fault.message = (
                    f"forward writes to its input, which is read-only ({fault.message}); write to a new tensor"
                )
        finally:
            job.stop_arm("submission")
            job.lent = readable

    def hidden_trials(self) -> None:
        """Raises SubmissionFault at the first that fails."""
        job = self._job
        job.begin_hidden()
        job.truth.learns = False
        for hidden, seed in zip(job.protocol["hidden_inputs"], job.seeds.hidden, strict=True):
            factor = hidden["factor"]
            draw = partial(job.prepare, [seed], factor=factor)
            reason = job.problem["dropped"].get(hidden["name"])
            self._hidden_trial(hidden["name"], draw, reason, with_ceiling=True, factor=factor)
        for probe, seed in zip(job.protocol["probes"], job.seeds.probes, strict=True):
            change = partial(prepare_probe, job, probe, seed)
            if self._hidden_trial(probe, change, None, with_ceiling=False):
                job.tolerated.append(probe)
        job.truth.close_checks()

    def _hidden_trial(
        self, name: str, prepare: Callable[..., object], reason: str | None, *, with_ceiling: bool,
        **evidence: Any,
    ) -> bool:  # fmt: skip
        """One hidden check; False when it is dropped, since the reference itself does not bear these inputs, or when
        honest arithmetic may lose much on them."""
        job = self._job
        slot = len(job.seeds.standard) % job.plan.slots
        if reason is None:
            refused = prepare(first=slot)
            reason = refused if isinstance(refused, str) else None
        if reason is None:
            nonfinite = count_nonfinite(job.store.expected, slot, job.device)
            if nonfinite and not self._nonfinite_allowed:
                reason = f"{nonfinite} elements of the reference's own output are NaN or infinite"
        comparison: Comparison | str = reason or ""
        if reason is None:
            job.call_submission("hidden", first=slot, calls=1, gated=False)
            comparison = job.truth.judge(slot, with_ceiling=with_ceiling, with_loss=not with_ceiling)
        if isinstance(comparison, str):
            evidence = {"dropped": comparison, **evidence}
            job.checks.append({"name": f"hidden-{name}", "stage": "hidden", "passed": None, "evidence": evidence})
            return False
        job.record(f"hidden-{name}", "hidden", comparison, **evidence)
        if not comparison.passed:
            raise SubmissionFault("WRONG_HIDDEN", "hidden", words_of(comparison, f"hidden inputs {name}"))
        return comparison.loss < max(_LITTLE_LOSS, _USUAL_LOSSES * self._usual_loss)

    def _anatomy(self, comparison: Comparison) -> dict[str, Any]:
        """How the output of a standard trial is wrong. Never of a hidden one: it is told to the agent."""
        job = self._job
        if job.truth.wrong is None:
            return {}
        expected, found, rows = job.truth.wrong
        tolerance = job.protocol["tolerance"]
        absolute = None if job.truth.calibrated else comparison.widened_to or tolerance["absolute"]
        try:
            anatomy = describe(comparison, expected, found, rows, absolute, tolerance["relative"])
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as e:  # it looks at what the submission wrote
            job.flags.append(f"where the output is wrong could not be told: {type(e).__name__}")
            return {}
        return {} if anatomy is None else {"anatomy": anatomy}


def prepare_probe(job: Job, probe: str, seed: int, *, first: int) -> str | None:
    """The probe's inputs and outputs, or why there are none."""
    touched = False

    def change() -> None:
        nonlocal touched
        touched = apply_probe(job.store.masters, first, probe, job.seeds.transform)

    try:
        job.prepare([seed], first=first, change=change)
    except InfrastructureFault as fault:
        if fault.kind != "reference" or job.arm("reference").ended:
            raise
        return str(fault)
    return None if touched else "the inputs hold nothing that it may change"


def words_of(comparison: Comparison, where: str) -> str:
    if comparison.reason is not None:
        return f"{where}: {comparison.reason}"
    text = (
        f"{where}: {comparison.mismatched} of {comparison.elements} elements differ; "
        f"largest absolute error {comparison.max_abs_error:.3g}, relative {comparison.max_rel_error:.3g}"
    )
    if comparison.first:
        first = comparison.first
        text += f"; output {first['output']} at {first['index']}: expected {first['expected']}, found {first['found']}"
    return text
