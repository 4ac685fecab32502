"""One job: from a problem and a submission to what was established. The order of the stages is the defence.

The reference is loaded, drawn from and timed before any process has read the submission. Every call of the submission,
in a check or on the clock, takes the same path, over inputs it has not seen, and every output is compared.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ..layout import Layout, leaf_from_json
from ..wire import Message
from .arm import REFERENCE_S, Arm, ArmError
from .artifacts import Artifacts
from .build import Builds
from .checks import Checks, words_of
from .clock import Clock, Turn
from .compare import Comparison, same_bytes
from .diagnosis import asks_for_access, diagnose_access, diagnose_right
from .faults import InfrastructureFault, SubmissionFault, submission_fault
from .memory import measure_memory
from .place import NULL, REFERENCE, SUBMISSION, Place, expect_isolation
from .plan import Demand, DoesNotFitError, Plan, free_memory, make_plan
from .plausibility import Rates, find_floor, take_rates
from .probe import perturb
from .provenance import looks_at_kernels, trace_submission
from .room import charged_to_its_holder, expect_room
from .seeds import Seeds
from .slots import Signature, Slots, Store, copy_slots, scale_slots
from .timing import measure, measure_alone
from .truth import Truth
from .variant import measure_compiled


class Job:
    """Runs once, at a place that nothing else has used and that ends with it."""

    at_start: Sequence[str] = (REFERENCE, NULL, SUBMISSION)
    """Roles whose first runners are started together when the job begins."""

    def __init__(
        self, spec: Message, place: Place, report: Callable[[str], None], artifacts: Artifacts | None = None
    ) -> None:
        self.protocol: Message = spec["protocol"]
        self.problem: Message = spec["problem"]
        self.source: str = spec["source"]
        self.device: str = spec["device"]
        self.report = report
        self.checks: list[Message] = []
        self.flags = place.flags
        self.seconds: dict[str, float] = {}
        self.result: Message = {}
        self._place = place
        self.spares = place.spares
        self._builds: Builds | None = None
        if artifacts is not None and place.builder_uid is not None:
            on_left = partial(setattr, place, "left")
            self._builds = Builds(place.zygote, artifacts, self.protocol["limits"], place.builder_uid, on_left)
        self._stack = contextlib.ExitStack()
        self._arms: dict[str, Arm] = {}
        self._ending: list[Arm] = []  # of the reference: released, and not waited for yet
        self._deadline: float = time.monotonic() + self.protocol["limits"]["job_s"]
        self._hidden_began = False
        self._printed: str | None = None
        self._isolation: Message | None = None
        self.seeds = Seeds.choose(self.protocol, spec["seeds"])
        self._redrawn: list[Message] = []
        self.tolerated: list[str] = []
        """Probes that the reference bears, so that timed inputs may be changed in their way."""
        self.truth = Truth(self)
        self.timer_start: tuple[int, bool, list[str]] = (1, False, [])
        self.reference_alone: list[float] = []
        self.reference_alone_single: list[float] = []
        """The same in turns of one call."""
        self.null_alone: dict[tuple[int, bool], float] = {}
        """Median turn of the null runner before the submission existed, by calls and whether gated."""
        self.rates: Rates | None = None
        """What the device can do at most; None where it was not measured."""
        self.stage = ""
        """Of the job, at which a submission that fails now has failed."""
        self.submission_ms = float("inf")
        """The quickest call of the submission so far, on the open clock: an upper bound of its latency."""

    def run(self) -> Message:
        """The result for the host; raises InfrastructureFault."""
        checks = Checks(self)
        with self._place, self._stack:
            try:
                self._phase("reference", self.start_reference)
                self._phase("reference-alone", lambda: measure_alone(self))
                if self.protocol["compiled_baseline"]:
                    self._phase("compiled-baseline", lambda: measure_compiled(self))
                looks = looks_at_kernels(self)
                if looks:
                    self._phase("rates", lambda: take_rates(self))
                self._phase("build", self.start_submission)
                with charged_to_its_holder(self):
                    self._phase("standard", checks.standard_trials)
                    if self.protocol["diagnostics"]:
                        self._phase("diagnosis", lambda: diagnose_right(self))
                    self._phase("hidden", checks.hidden_trials)
                    self._phase("timing", lambda: measure(self))
                    if looks:
                        self._phase("plausibility", lambda: find_floor(self))
                        self._phase("provenance", lambda: trace_submission(self))
                    self._phase("memory", lambda: measure_memory(self))  # the last: it ends the runners
                outcome: Message = {"status": "PASSED", "stage": None, "message": "every check passed", "detail": None}
            except SubmissionFault as fault:
                outcome = {
                    "status": fault.status, "stage": fault.stage, "message": fault.message, "detail": fault.detail,
                }  # fmt: skip
                for claim in ("timing", "memory"):
                    self.result.pop(claim, None)
                if self.has("submission"):
                    self._arms["submission"].stop()  # what it printed last is in the pipe
                self.keep_printed()
                if fault.status == "OUT_OF_MEMORY" and self.device == "cuda":
                    expect_room(self.plan.runner_bytes)
                if asks_for_access(self, fault):
                    self._phase("diagnosis", lambda: diagnose_access(self))
            except DoesNotFitError as e:
                raise InfrastructureFault("memory", str(e)) from e
            self.keep_printed()
            ending = time.perf_counter()
            self._release_all()
        self.seconds["end"] = round(time.perf_counter() - ending, 4)
        return outcome | self.result | {
            "checks": self.checks, "flags": self.flags, "seconds": self.seconds, "output": self._printed,
            "isolation": self._isolation, "seeds": self.seeds.to_json(),
            "build": None if self._builds is None else self._builds.facts,
        }  # fmt: skip

    def _phase(self, name: str, step: Callable[[], None]) -> None:
        self.stage = {"diagnosis": "standard", "plausibility": "timing"}.get(name, name)
        self.report(name)
        started = time.perf_counter()
        try:
            step()
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)

    # -- the reference ------------------------------------------------------------------------------------------------

    def start_reference(self) -> None:
        """Loads the reference, learns shapes and cost, plans memory, and times it alone."""
        self.spares.complete(self.at_start)
        with self.reference_faults():
            self.recreate_reference()
            reference = self._arms["reference"]
            facts = reference.ask("inspect", timeout_s=REFERENCE_S, drawing="device", seed=self.seeds.standard[0])
            self.on_device: bool = facts["on_device"]
            if not facts["on_device"]:
                self.flags.append("get_inputs does not draw on the device: inputs are drawn on the CPU and moved")
            leaves = {name: [leaf_from_json(leaf) for leaf in facts[name]] for name in ("inputs", "outputs")}
            self.signature = Signature(
                facts["input_tree"], facts["output_tree"], Layout(leaves["inputs"]), Layout(leaves["outputs"])
            )
            if not leaves["outputs"]:
                raise InfrastructureFault("reference", "the reference's output holds no tensor")
            self.forward_ms: float = max(facts["forward_ms"], 1e-3)
            self.spares.rest()
            self.plan = self._fit(facts)
            self.store = Store(self.device, self.signature, self.plan)
            self._stack.callback(self.store.close)  # while runners end: for what is freed later the next job waits
            limits = self.protocol["limits"]
            call_s = max(limits["call_s"], limits["call_factor"] * self.forward_ms / 1e3)
            self.clock = Clock(self.device, self.store, call_s, hides_inputs=not facts["aliases"])
            self.trusted = self.open_slots(writable=True)
            if self.device == "cuda":
                self.result["device_memory"] = {"need_bytes": self.plan.need_bytes, "have_bytes": self.plan.have_bytes}
            self.start_arm("null")

    def recreate_reference(self) -> None:
        """A new process for the reference, its model built and its weights written out for the submission."""
        old = self._retire("reference")
        if old is not None and not (old.alone and self.spares.has("reference")):
            old.stop()  # memory may be short; and all of its uid ends with one that has no pid namespace
            old = None
        reference = self.start_arm("reference")
        loaded = reference.ask(
            "load", timeout_s=REFERENCE_S, problem=self.problem["source"], source=None, entry="Model",
            seed=self.seeds.construction, precision=self.protocol["precision"],
            tf32=self.protocol["tf32"]["reference_timing"], redraw=self.redraw(None),
        )  # fmt: skip
        self._redrawn = loaded["redrawn"]
        self.result.setdefault("tf32", {})["reference_timing"] = loaded["tf32"]
        if not hasattr(self, "_state"):
            self._state: list[Message] = loaded["state"]
            self._weights = self._stack.enter_context(os.fdopen(os.memfd_create("kbenv-weights"), "r+b"))
            os.fchmod(self._weights.fileno(), 0o600)
            reference.ask("write_state", timeout_s=REFERENCE_S, descriptors=[os.dup(self._weights.fileno())])
        if old is not None:
            self._ending.append(old)

    def await_ended(self) -> None:
        """No reference of an earlier pair is left when this returns."""
        while self._ending:
            self._ending.pop().stop()

    def recreate_pair(self) -> None:
        """New processes for reference and submission, for timing; the old submission is gone, see `await_ended`."""
        for role in ("submission", "reference"):
            self._arms[role].release()  # they end while the next reference is made ready
        with self.reference_faults():
            self.recreate_reference()
        self.recreate_submission("timing")

    def redraw(self, known: list[Message] | None) -> Message | None:
        return {"secret": self.seeds.redraw, "known": known} if self.protocol["redraw_parameters"] else None

    def _fit(self, facts: Message) -> Plan:
        """The plan; where memory is short blank runners go, of which each has a context on the device."""
        with contextlib.suppress(DoesNotFitError):
            plan = self._make_plan(facts)
            if not plan.exclusive:
                return plan
        self.spares.stop()
        return self._make_plan(facts)

    def _make_plan(self, facts: Message) -> Plan:
        inputs, outputs = self.signature.inputs.slot_bytes, self.signature.outputs.slot_bytes
        free, l2 = free_memory(self.device)
        cap = self.protocol["limits"]["device_memory_bytes"]
        weights = sum(item["bytes"] for item in self._state)
        work = max(facts["peak_bytes"] - inputs, weights + outputs)
        timing = self.protocol["timing"]
        return make_plan(
            Demand(
                device=self.device, input_bytes=inputs, output_bytes=outputs, work_bytes=work, weight_bytes=weights,
                forward_ms=self.forward_ms, free_bytes=free if cap is None else min(free, cap), l2_bytes=l2,
            ),
            target_turn_ms=timing["target_turn_ms"], max_slots=timing["max_slots"],
            cold_l2_multiple=timing["cold_l2_multiple"],
        )  # fmt: skip

    @contextlib.contextmanager
    def reference_faults(self) -> Iterator[None]:
        """A failure of a trusted runner is ours to report, never the submission's and never a pass."""
        try:
            yield
        except ArmError as e:
            if e.kind == "memory":
                free = free_memory(self.device)[0] / 2**30
                raise InfrastructureFault(
                    "memory",
                    f"the problem's reference needs more {self.device} memory than there is; have {free:.2f} GiB "
                    f"free now; use a larger device or a smaller problem ({e.message})",
                ) from e
            lines = re.findall(r'problem\.py", line (\d+)', e.detail or "")
            where = f" (line {lines[-1]} of the problem's source)" if lines else ""
            raise InfrastructureFault(
                "reference", f"the problem's reference failed: {e.message}{where}", e.detail
            ) from e

    # -- arms ---------------------------------------------------------------------------------------------------------

    def start_arm(self, role: str) -> Arm:
        """A runner, blank before or new."""
        arm = self._arms[role] = self.spares.take(role) or self._place.start(role)
        return arm

    def open_arm(self, role: str) -> Arm:
        """A runner that is the caller's to stop."""
        return self._place.open(role)

    def _add_spares(self) -> None:
        """For the pairs of runners to come, as many as the device's memory takes beside the plan."""
        room = self.plan.room_for_contexts if self.device == "cuda" else len(self.further_roles)
        self.spares.complete(self.further_roles, at_most=room)

    @property
    def further_roles(self) -> list[str]:
        """Of the runners that timing wants after the first pair, in the order of their turns."""
        pairs: int = self.protocol["timing"]["runner_pairs"] - 1
        return [REFERENCE, SUBMISSION] * pairs

    def stop_arm(self, role: str) -> None:
        if (arm := self._retire(role)) is not None:
            arm.stop()

    def stop_arms(self, *roles: str) -> None:
        """They end at the same time."""
        for role in roles:
            self._arms[role].release()
        for role in roles:
            self.stop_arm(role)

    def _retire(self, role: str) -> Arm | None:
        arm = self._arms.pop(role, None)
        if arm is not None:
            (self.trusted if role != "submission" else self.lent).forget(arm)
        return arm

    def _release_all(self) -> None:
        """They end at the same time; each is then waited for."""
        for arm in self._arms.values():
            arm.release()
        self.spares.release()

    def arm(self, role: str) -> Arm:
        return self._arms[role]

    def has(self, role: str) -> bool:
        return role in self._arms

    @contextlib.contextmanager
    def others_paused(self, role: str) -> Iterator[None]:
        """The other arms' processes stand still during a turn of `role`: all on the CPU, on a GPU the submission's.

        A submission cannot slow a trusted runner then, nor do idle threads that spin take the cores from working ones.
        """
        stopped = set(self._arms) - {role}
        if self.device == "cuda":  # there it costs more than it brings, save where a submission is not trusted
            stopped &= {"submission"} if self.protocol["guard_reference"] else set()
        others = [self._arms[name] for name in stopped]
        with contextlib.ExitStack() as resumed:
            for arm in others:
                with self._faults_of(arm):
                    arm.pause()
                    arm.settle()
                resumed.callback(arm.resume)
            yield
            for arm in others:
                with self._faults_of(arm):
                    arm.expect_still()

    def _faults_of(self, arm: Arm) -> contextlib.AbstractContextManager[None]:
        return self.submission_faults("timing") if arm.role == "submission" else self.reference_faults()

    def open_slots(self, *, writable: bool) -> Slots:
        slots = Slots(self.device, self.signature, self.plan, inputs_writable=writable)
        self._stack.callback(slots.close)
        return slots

    # -- the submission -----------------------------------------------------------------------------------------------

    def start_submission(self) -> None:
        self.lent = self.open_slots(writable=False)
        self.recreate_submission("load")
        self._first_call = True

    def recreate_submission(self, stage: str) -> None:
        """A new process for the submission: loaded, built under the reference's seed, given the reference's weights."""
        self.stop_arm("submission")
        limits, protocol = self.protocol["limits"], self.protocol
        arm = self.start_arm("submission")
        self._isolation = self._isolation or arm.isolation
        if not protocol["same_uid"]:
            expect_isolation(arm.isolation)
        arm.build = None if self._builds is None else self._builds.answer
        with self.submission_faults(stage):
            loaded = arm.ask(
                "load", timeout_s=self.remaining(limits["build_s"], stage), must_work=True,
                problem=self.problem["source"], source=self.source, entry="ModelNew", seed=self.seeds.construction,
                precision=protocol["precision"], tf32=protocol["tf32"]["submission"],
                redraw=self.redraw(self._redrawn),
            )  # fmt: skip
            self.result.setdefault("tf32", {})["submission"] = _short(loaded.get("tf32"))
            given = arm.ask(
                "load_state", timeout_s=limits["build_s"], state=self._state,
                descriptors=[os.open(f"/proc/self/fd/{self._weights.fileno()}", os.O_RDONLY)],
            )  # fmt: skip
        weights = given.get("weights")
        self.result["weights"] = weights if weights in ("state_dict", "seed", "none") else "seed"
        self._first_call = True

    @contextlib.contextmanager
    def submission_faults(self, stage: str) -> Iterator[None]:
        try:
            yield
        except ArmError as e:
            raise submission_fault(e, stage) from e

    def remaining(self, limit_s: float, stage: str) -> float:
        """`limit_s`, or what is left of the job's time."""
        left = self.left_s()
        if left <= 0:
            job_s: float = self.protocol["limits"]["job_s"]
            raise SubmissionFault("TIMEOUT", stage, f"the whole job took longer than {job_s:.4g} s")
        return min(limit_s, left)

    def left_s(self) -> float:
        """What is left of the job's time."""
        return self._deadline - time.monotonic()

    def read_built_code(self, timeout_s: float) -> tuple[list[Message] | None, str | None]:
        """See `Builds.read_code`; nothing where nothing is built outside the submission's process."""
        return self._builds.read_code(timeout_s) if self._builds is not None else (None, None)

    # -- calls --------------------------------------------------------------------------------------------------------

    def prepare_timed(self, first: int, calls: int, *, expect: bool) -> None:
        """Fresh inputs for a turn, a few of their elements changed where the protocol says so; `expect`: and what the
        outputs must be."""
        slots = range(first, first + calls)
        change = None
        if self.protocol["perturb_timed"]:
            transform = self.seeds.transform + self.seeds.timed_count
            change = partial(perturb, self.store.masters, slots, self.tolerated, transform)
        self.prepare(self.seeds.next_timed(calls), first=first, change=change, expect=expect)

    def prepare(
        self, seeds: Sequence[int], *, first: int = 0, factor: float = 1.0,
        change: Callable[[], object] | None = None, on_device: bool | None = None, expect: bool = True,
    ) -> None:  # fmt: skip
        """Draws one slot per seed, changes and keeps the masters, and (`expect`) computes what the outputs must be."""
        reference, calls = self._arms["reference"], len(seeds)
        on_device = self.on_device if on_device is None else on_device
        with self.reference_faults(), self.trusted.lent_to(reference):
            reference.ask("draw", timeout_s=REFERENCE_S, first=first, seeds=list(seeds), on_device=on_device)
            copy_slots(self.trusted.inputs, self.store.masters, first, calls)
            self.synchronize()
        if factor != 1.0:
            scale_slots(self.store.masters, first, calls, factor)
        if change is not None:
            change()
        if expect:
            self.expect_exactly(first, calls)

    def expect_exactly(self, first: int, calls: int) -> None:
        """Has the reference compute what the outputs must be."""
        self.call_reference("reference_correctness", first=first, calls=calls)
        self.store.expect_snapshot()

    def call_reference(self, flags: str, *, first: int, calls: int, op: str = "turn") -> Turn:
        """One turn of the reference under the TF32 flags of a phase; its outputs are in the snapshot.

        Afterwards those of the baseline hold again.
        """
        reference, table = self._arms["reference"], self.protocol["tf32"]
        with self.reference_faults(), self.trusted.lent_to(reference):
            self.result["tf32"][flags] = reference.ask("tf32", timeout_s=REFERENCE_S, tf32=table[flags])["tf32"]
            try:
                return self.clock.turn(
                    reference, self.trusted, first=first, calls=calls, gated=False, op=op, deadline_s=REFERENCE_S
                )
            finally:
                if not reference.ended:
                    reference.ask("tf32", timeout_s=REFERENCE_S, tf32=table["reference_timing"])

    def call_submission(
        self, stage: str, *, first: int, calls: int, gated: bool, apart: bool = False, events: bool = False
    ) -> Turn:
        """One turn of the submission over prepared slots, timed; its inputs must be unchanged after it."""
        arm = self._arms["submission"]
        device_s = self.clock.call_s * calls
        deadline_s = self.protocol["limits"]["build_s"] if self._first_call else device_s
        with self.submission_faults(stage), self.lent.lent_to(arm):
            timed = self.clock.turn(
                arm, self.lent, first=first, calls=calls, gated=gated, apart=apart, events=events,
                gate_s=self.gate_s(calls), deadline_s=self.remaining(deadline_s, stage),
                device_s=device_s if self._first_call else None,
            )  # fmt: skip
            arm.check_host_memory()  # of what was taken too fast to be seen meanwhile
            size = self.signature.inputs.slot_bytes
            part = slice(first * size, (first + calls) * size)
            hidden = apart and self.clock.hides_inputs
            if not hidden and not same_bytes(self.lent.inputs.flat[part], self.store.masters.flat[part]):
                raise SubmissionFault("TAMPERED", stage, "the inputs, mapped read-only, were changed during a call")
        if not self._first_call:
            self.submission_ms = min(self.submission_ms, (timed.ms + timed.copy_ms) / calls)
        self._first_call = False
        arm.build = None  # what is built later is built on its own time
        return timed

    def gate_s(self, calls: int) -> float:
        """How long enqueueing may take before the arm counts as blocked behind the gate."""
        return max(0.25, 4 * calls * self.forward_ms / 1e3)

    # -- what was found -----------------------------------------------------------------------------------------------

    def begin_hidden(self) -> None:
        """From now on nothing that the submission says is shown, and nothing is built that was not before.

        Most of what is wrong has been found out: now it pays to start the runners that timing will want.
        """
        self._hidden_began = True
        self._add_spares()
        if self._builds is not None:
            self._builds.close()

    def record(self, name: str, stage: str, comparison: Comparison, **more: Any) -> None:
        self.checks.append(
            {"name": name, "stage": stage, "passed": comparison.passed, "evidence": comparison.evidence() | more}
        )

    def record_timed(self, comparison: Comparison) -> None:
        self.record("timed-outputs", "timing", comparison)
        if not comparison.passed:
            raise SubmissionFault("WRONG_HIDDEN", "timing", words_of(comparison, "a timed call"))
        self.checks.append({"name": "inputs-unchanged", "stage": "timing", "passed": True, "evidence": {}})

    # -- small things -------------------------------------------------------------------------------------------------

    def keep_printed(self) -> None:
        """What was printed until the hidden checks began; later output may carry hidden inputs."""
        if self._printed is None and not self._hidden_began and "submission" in self._arms:
            self._printed = self._arms["submission"].printed or None

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _short(value: Any) -> Any:
    """A small mapping of a runner's, or None: it is shown, never used."""
    if isinstance(value, dict) and len(value) < 8 and all(isinstance(v, str) and len(v) < 32 for v in value.values()):
        return value
    return None
