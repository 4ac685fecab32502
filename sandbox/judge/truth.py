"""What is right: the reference's outputs, how sure they are, and whether the submission's agree.

Under a protocol with a calibrated tolerance a check is held against the reference in float64, and its tolerance comes
from the reference's own errors on the same inputs (`calibration`); where the output is as close to the fp32 reference
as earlier checks allow in any case, or as two of the reference's runs do, that is settled without. A timed call is held
against what the reference returned in its own turn over the same inputs, as close as earlier checks allow; where that
does not settle it, against the exact fp32 reference, its tolerance from one more run on inputs moved by a unit in the
last place, under the baseline's flags, and from the errors that the checks have shown. Where float64 is impossible (an
operator without it, no memory) the fp32 reference stands for it, and the verdict says so.

Without calibration the protocol's fixed tolerance holds, widened where the baseline itself is outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..buffers import Buffer, create_buffer
from ..layout import Arena, Layout
from .arm import REFERENCE_S, ArmError
from .blocks import float64_leaf, off_by
from .calibration import ILL_CONDITIONED, Calibration, Closer, Deviation, Rule
from .compare import Comparison, all_within, compare, compare_matched
from .faults import InfrastructureFault
from .probe import jitter

if TYPE_CHECKING:
    from .job import Job

_FEW, _FEW_SHARE, _CLOSER_RUNS = 16, 1e-3, 4
_FEW_OF_PRODUCTS = 1e-2
"""Where products may be of TF32: whole rows of an attention hang on two scores that are nearly equal."""
_LOSS, _MOST_LOSS, _ROUNDING = 10.0, 0.5, 2.0**-24
"""A sum in sequence, of thousands of squares, is off by some 20 roundings, and the square root halves that."""


class Truth:
    """Of one job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        rule = job.protocol["calibration"]
        self.calibrated = rule is not None
        self._calibration = Calibration(Rule(**rule), job.device) if rule is not None else None
        self._exact_buffer: Buffer | None = None
        self._exact: Arena | None = None
        self._no_exact: str | None = None
        """Why the reference does not run in float64."""
        self._checked_exactly = False
        self.errors: dict[str, dict[int, Deviation]] = {}
        """Of the last check calibrated, by variant and output: "rounding" (fp32 against float64), "baseline" (the
        baseline's flags), "truncated" (operands of products cut to TF32), "jitter" (inputs moved by a unit in the last
        place)."""
        self.wrong: tuple[Arena, Arena, tuple[int, int]] | None = None
        """Of a check that failed: expected, found, and the slot of each. What passed is not kept: it may be large."""
        self._ceiling_holds = False
        self.learns = True
        """What a check shows of the reference's error holds for those after it: not once the inputs may be scaled."""
        self._has_products = job.device == "cuda" and job.protocol["precision"] == "fp32" and rule is not None
        """Whether the reference, as far as is known, holds products that a tensor core may take."""
        self._rounding = 1.0
        """On inputs as the problem draws them the reference's error against float64, as a multiple of that on moved
        inputs, at least 1: by it the one stands for the other where float64 was not asked."""
        self._few_settle = 2
        """By how much more often a few runs of the reference have settled a check than they have not, and some credit:
        only then they are tried before all."""

    @property
    def no_exact(self) -> str | None:
        """Why the reference does not run in float64; None while nothing speaks against it."""
        return self._no_exact

    # -- checks -------------------------------------------------------------------------------------------------------

    def calibrate(self, slot: int, *, drawn: bool = True) -> str | None:
        """After the expected output is there: how sure it is. Returns why it can judge nothing, if it cannot.

        `drawn`: the inputs are as the problem draws them, up to a factor.
        """
        if self._calibration is None:
            return None
        job, calibration = self._job, self._calibration
        exact = self._run_exact(slot)
        row = 0 if exact is not None else None
        expected = exact or job.store.expected
        calibration.begin(expected, slot, row=row)
        self.errors = {}
        if exact is not None:
            self.errors["rounding"] = calibration.add_variant(exact, job.store.expected, slot, row=0)
        self._add_baseline(expected, slot, row)
        if self._has_products:
            self._truncate_products(slot, 1)
            self.errors["truncated"] = calibration.add_variant(expected, job.store.snapshot, slot, row=row)
        self._add_jittered(expected, slot, row)
        relative = calibration.finish(slot, lasting=drawn and self.learns, drawn=drawn)
        self._checked_exactly = exact is not None
        if drawn and self.learns and (jitter := self._relative("jitter")) > 0:
            self._rounding = max(self._rounding, self._relative("rounding") / jitter)
        if relative >= ILL_CONDITIONED:
            return f"the reference's own rounding error is {relative:.2g} of its output"
        return None

    def loss(self) -> float:
        """Of the values, by the check calibrated last: what honest arithmetic may lose where the reference hardly does.

        A variance from sums of squares has the square of the reference's relative error, in units of the rounding.
        """
        if self._job.protocol["precision"] != "fp32":
            return 0.0
        relative = max(self._relative("rounding"), self._relative("jitter"))
        return _LOSS * relative**2 / _ROUNDING

    def _relative(self, variant: str) -> float:
        """Of the check calibrated last, the largest over outputs; 0 where there was no such run."""
        return max((error.relative for error in self.errors.get(variant, {}).values()), default=0.0)

    def judge(
        self, slot: int, *, with_ceiling: bool, with_loss: bool = False, calibrated: bool = False
    ) -> Comparison | str:
        """The submission's output in the snapshot; or why the reference's own cannot judge it.

        `calibrated`: the slot is, for these very inputs.
        """
        job, calibration = self._job, self._calibration
        found = job.store.keep_snapshot()
        if calibration is None:
            return self._compare_fixed(slot, 1, found)
        quick = calibration.settle(job.store.expected, found, slot)
        if quick is not None and (not with_ceiling or self._keeps_ceiling(slot, found, quick)):
            return quick
        if not calibrated:
            few = self._settle_by_few(slot, found, with_ceiling, with_loss) if self._few_settle > 0 else None
            if few is not None:
                self._few_settle += 1
                return few
            if (reason := self.calibrate(slot, drawn=with_ceiling)) is not None:
                return reason
            self._few_settle -= 1
        loss, rule = self.loss() if with_loss else 0.0, calibration.rule
        if loss > _MOST_LOSS:
            return "honest arithmetic may lose all of the output on these inputs"
        rule = replace(rule, element_floor=rule.element_floor + 2 * loss, rms_floor=rule.rms_floor + loss)
        exact = self._exact if self._checked_exactly else None
        expected, row = (exact, 0) if exact is not None else (job.store.expected, None)
        comparison = self._compare_calibrated(expected, found, slot, row, "reference_correctness", rule)
        comparison.loss = loss
        if not comparison.passed:
            self.wrong = (expected, found, (slot if row is None else row, slot))
        if comparison.passed and with_ceiling and self._ceiling_holds:
            fixed = self._within_ceiling(slot, found)
            if not fixed.passed and self._reference_is_within(slot, exact):
                fixed.tolerance_used = comparison.tolerance_used
                self.wrong = (job.store.expected, found, (slot, slot))
                return fixed
        return comparison

    def _settle_by_few(self, slot: int, found: Arena, with_ceiling: bool, with_loss: bool) -> Comparison | None:
        """By two more runs of the reference, none of them in float64; None where that does not settle it.

        What errors these show the others would show, too, but for fp32's own rounding: `Calibration.settle` and this
        leave room for that.
        """
        job, calibration = self._job, self._calibration
        assert calibration is not None
        expected, self.errors = job.store.expected, {}
        calibration.begin(expected, slot)
        self._add_baseline(expected, slot)
        self._add_jittered(expected, slot)
        relative = calibration.finish(slot, lasting=False, drawn=with_ceiling)
        loss = self._rounding**2 * self.loss() if with_loss else 0.0
        if relative >= ILL_CONDITIONED or loss > _MOST_LOSS:
            return None
        settled = calibration.settle_calibrated(expected, found, slot)
        if settled is None or (with_ceiling and self._ceiling_holds and not self._keeps_ceiling(slot, found, settled)):
            return None
        settled.loss = loss
        return settled

    def _keeps_ceiling(self, slot: int, found: Arena, settled: Comparison) -> bool:
        absolute: float = self._job.protocol["tolerance"]["absolute"]
        return settled.max_abs_error <= absolute or self._within_ceiling(slot, found).passed

    def _within_ceiling(self, slot: int, found: Arena, share: float = 1.0) -> Comparison:
        tolerance, job = self._job.protocol["tolerance"], self._job
        absolute = [share * tolerance["absolute"]] * len(job.signature.outputs.leaves)
        relative = share * tolerance["relative"]
        return compare(job.store.expected, found, range(slot, slot + 1), absolute, relative, job.device)

    def _reference_is_within(self, slot: int, exact: Arena | None) -> bool:
        """Whether the fp32 reference is within half the ceiling of the exact one, as far as that is known.

        A running sum is not where it comes near zero, and what is right may be as far on the other side.
        """
        tolerance, job = self._job.protocol["tolerance"], self._job
        absolute, relative = 0.5 * tolerance["absolute"], 0.5 * tolerance["relative"]
        return exact is None or all_within(exact, 0, job.store.expected, slot, absolute, relative, job.device)

    # -- timed calls --------------------------------------------------------------------------------------------------

    def judge_timed(self, first: int, calls: int, found: Arena) -> Comparison:
        """Every output of a timed turn. Calibrated, the reference's own outputs of the same round are what is expected
        at first."""
        job, calibration = self._job, self._calibration
        if calibration is None:
            return self._compare_fixed(first, calls, found)
        at_once = calibration.settle(job.store.expected, found, first, calls)
        if at_once is not None:
            return at_once
        job.expect_exactly(first, calls)
        comparison, doubtful = Comparison(), []
        for slot in range(first, first + calls):
            quick = calibration.settle(job.store.expected, found, slot)
            if quick is None:
                doubtful.append(slot)
            else:
                comparison.merge(quick)
        if doubtful:
            self._run_jittered(first, calls, "reference_timing")
            for slot in doubtful:
                calibration.begin(job.store.expected, slot)
                calibration.add_variant(job.store.expected, job.store.snapshot, slot)
            if self._has_products:
                self._truncate_products(first, calls)
            for slot in doubtful:
                if self._has_products:
                    calibration.add_variant(job.store.expected, job.store.snapshot, slot)
                calibration.finish(slot, lasting=False)
                comparison.merge(self._compare_calibrated(job.store.expected, found, slot, None, "reference_timing"))
        return comparison

    def _compare_calibrated(
        self, expected: Arena, found: Arena, slot: int, row: int | None, flags: str, rule: Rule | None = None
    ) -> Comparison:
        """By what is known of the slot; where few elements are outside, more is found out about those.

        `rule` in the place of the protocol's.
        """
        job, calibration = self._job, self._calibration
        assert calibration is not None
        inputs = job.store.masters.views(slot)
        comparison = calibration.compare(expected, found, slot, job.store.expected, inputs, row=row, rule=rule)
        outside = {index: places for index, places in calibration.outside.items() if len(places) > 0}
        count = sum(map(len, outside.values()))
        share = _FEW_OF_PRODUCTS if self._has_products else _FEW_SHARE
        if count == 0 or comparison.mismatched > count or count > _FEW + share * comparison.elements:
            return comparison
        errors = {index: calibration.least_error(slot, index, places).cpu() for index, places in outside.items()}
        for run in range(1, _CLOSER_RUNS + 1):
            self._run_jittered(slot, 1, flags, run)
            for index, places in outside.items():
                e = expected.flat_leaf(slot if row is None else row, index)
                v = job.store.snapshot.flat_leaf(slot, index)
                off = off_by(*(x[places.to(x.device)].cpu() for x in (e, v))).double().abs()
                errors[index] = torch.maximum(errors[index], off.nan_to_num(0.0, 0.0, 0.0))
        known = {index: Closer(places, errors[index].to(places.device)) for index, places in outside.items()}
        closer = calibration.compare(
            expected, found, slot, job.store.expected, inputs, row=row, rule=rule, closer=known
        )
        closer.looked_closer = count
        return closer

    def close_checks(self) -> None:
        """The checks are over: what float64 took is given back before anything is timed."""
        self._drop_exact()
        if self._no_exact is not None:
            self._job.flags.append(
                f"the reference does not run in float64, so that fp32 stands for it: {self._no_exact}"
            )

    # -- runs of the reference ----------------------------------------------------------------------------------------

    def _run_exact(self, slot: int) -> Arena | None:
        job = self._job
        if job.plan.exclusive:
            self._no_exact = "its memory is lent to one runner at a time"
        if self._no_exact is not None:
            return None
        reference = job.arm("reference")
        layout = Layout([float64_leaf(leaf) for leaf in job.signature.outputs.leaves])
        try:
            if self._exact_buffer is None:
                self._exact_buffer = create_buffer(job.device, layout.slot_bytes)
                self._exact = Arena(self._exact_buffer.flat, layout, 1)
                reference.ask(
                    "attach_exact", timeout_s=REFERENCE_S, leaves=[leaf.to_json() for leaf in layout.leaves],
                    descriptors=[self._exact_buffer.open_descriptor(writable=True)],
                )  # fmt: skip
            with job.trusted.lent_to(reference):
                self._fill_inputs(slot)
                reference.ask("exact", timeout_s=REFERENCE_S, slot=slot)
        except MemoryError as e:
            self._no_exact = f"no memory for its output ({e})"
        except ArmError as e:
            if e.kind in ("died", "timeout", "malformed", "access"):
                raise InfrastructureFault("reference", f"the reference failed in float64: {e.message}", e.detail) from e
            self._no_exact = e.message
        if self._no_exact is not None:
            self._drop_exact()
            return None
        job.synchronize()
        return self._exact

    def _drop_exact(self) -> None:
        self._exact = None
        if self._exact_buffer is not None:
            with self._job.reference_faults():
                self._job.arm("reference").ask("forget_exact", timeout_s=REFERENCE_S)
            self._exact_buffer.close()
            self._exact_buffer = None

    def _add_baseline(self, expected: Arena, slot: int, row: int | None = None) -> None:
        """One run under the baseline's flags, where these are others; learns whether that keeps the fixed tolerance."""
        job, calibration = self._job, self._calibration
        assert calibration is not None
        self._ceiling_holds = True
        if job.protocol["tf32"]["reference_correctness"] != job.protocol["tf32"]["reference_timing"]:
            job.call_reference("reference_timing", first=slot, calls=1)
            self.errors["baseline"] = calibration.add_variant(expected, job.store.snapshot, slot, row=row)
            self._ceiling_holds = self._within_ceiling(slot, job.store.snapshot, share=0.5).passed

    def _add_jittered(self, expected: Arena, slot: int, row: int | None = None) -> None:
        assert self._calibration is not None
        self._run_jittered(slot, 1, "reference_correctness")
        self.errors["jitter"] = self._calibration.add_variant(expected, self._job.store.snapshot, slot, row=row)

    def _fill_inputs(self, slot: int) -> None:
        job = self._job
        job.trusted.inputs.slot(slot).copy_(job.store.masters.slot(slot))
        job.synchronize()

    def _truncate_products(self, first: int, calls: int) -> None:
        """The reference in fp32, with the operands of products cut to TF32; learns whether there are any."""
        turn = self._job.call_reference("reference_correctness", first=first, calls=calls, op="truncated_turn")
        self._has_products = turn.products > 0

    def _run_jittered(self, first: int, calls: int, flags: str, run: int = 0) -> None:
        """The same on inputs moved by a unit in the last place; the masters are as before afterwards.

        Of the first run on, what operators return is moved as well, and the operands of products by a unit of TF32.
        """
        masters, slots, seed = self._job.store.masters, range(first, first + calls), self._job.seeds.transform + run
        jitter(masters, slots, seed)
        try:
            op = ("dithered_turn" if self._has_products else "rounded_turn") if run else "turn"
            self._job.call_reference(flags, first=first, calls=calls, op=op)
        finally:
            jitter(masters, slots, seed)

    # -- a fixed tolerance --------------------------------------------------------------------------------------------

    def _compare_fixed(self, first: int, calls: int, found: Arena) -> Comparison:
        job = self._job
        tolerance = job.protocol["tolerance"]
        absolute = [tolerance["absolute"]] * len(job.signature.outputs.leaves)
        slots = range(first, first + calls)
        comparison = compare(job.store.expected, found, slots, absolute, tolerance["relative"], job.device)
        if tolerance["cap"] is not None or (tolerance["share"] < 1.0 and not comparison.passed):
            comparison = Comparison()
            for slot in slots:
                comparison.merge(compare_matched(job.store.expected, found, slot, tolerance, job.device))
        ceiling, flags = tolerance["baseline_ceiling"], job.protocol["tf32"]
        if not comparison.passed:
            self.wrong = (job.store.expected, found, (first, first))
        if comparison.passed or ceiling is None or flags["reference_correctness"] == flags["reference_timing"]:
            return comparison
        job.call_reference("reference_timing", first=first, calls=calls)
        baseline = compare(job.store.expected, job.store.snapshot, slots, absolute, tolerance["relative"], job.device)
        if baseline.passed:
            return comparison
        factor = tolerance["baseline_factor"]
        widened = [
            max(own, min(ceiling, factor * baseline.output_errors.get(index, 0.0)))
            for index, own in enumerate(absolute)
        ]
        comparison = compare(job.store.expected, found, slots, widened, tolerance["relative"], job.device)
        comparison.widened_to = max(widened)
        if comparison.passed:
            self.wrong = None
        return comparison
