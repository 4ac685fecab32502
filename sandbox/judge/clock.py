"""The clock that counts: the judge's own, from before the inputs are there to after the outputs are safe.

A turn of K calls: outputs poisoned; the runner enqueues K times (forward on slot k, copy to output slot k) behind a
gate; then the clock starts, the slots are filled, the gate opens, the runner says "done", the outputs are copied to the
judge's own memory, the clock stops. Nothing can be computed before the clock runs, because the inputs are not there;
nothing finished after "done" is in the snapshot. The same turn of a null runner (copies, no forward) is subtracted by
the caller. A forward that waits for the device blocks behind the closed gate: it is measured `open`, with its launch
overhead.

A turn of one call may be taken `apart`: the runner says "computed" before it copies, and each part has a time of its
own. Of such a turn nothing is subtracted that the submission could have spared itself. Nor can it put forward's work
off to the copy, whose time is not its own: the inputs are overwritten in between (where the reference returns no part
of them), the output slot must still be as it was, and a copy longer than the null runner's is charged.

On the CPU the judge looks, too, whether the output is in the runner's memory by then, see `presence`.

On the CPU there is no gate. The runner's processes are stopped (SIGSTOP) while the judge fills the slots and while it
takes the outputs, so that the clock holds neither copy, and nothing runs before it starts or after it ends.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..layout import Arena
from ..wire import Message
from .arm import Arm, ArmError
from .presence import Look, look
from .slots import Slots, Store, copy_slots

_COLLECT_S = 60.0
_SAMPLE_WORDS = 4096


class GateError(Exception):
    """The arm could not enqueue its calls behind the gate in time (it waits for the device, or the queue is full)."""


@dataclass(frozen=True)
class Turn:
    """Milliseconds on the judge's clock.

    Attributes:
        ms: of the whole turn; of a turn taken apart until its forward was computed.
        copy_ms: of a turn taken apart, from there to the end; else 0.
        event_ms: what the runner's own events say of each call: diagnostics.
        products: of the reference, in a turn that cuts the operands of products: how many there were.
    """

    ms: float
    copy_ms: float = 0.0
    event_ms: Sequence[float] = ()
    products: int = 0


class Clock:
    """Times turns of one job. Call deadlines are per call."""

    def __init__(self, device: str, store: Store, call_s: float, *, hides_inputs: bool) -> None:
        self._device = device
        self._store = store
        self.call_s = call_s
        self.hides_inputs = hides_inputs
        """Whether the inputs of a turn taken apart are gone when outputs are copied."""
        self.sees_memory = False
        """Whether the kernel has shown the memory of a runner, as it then does of every one."""
        self._random = torch.Generator(device).manual_seed(secrets.randbits(63))

    def turn(
        self, arm: Arm, slots: Slots, *, first: int, calls: int, gated: bool, apart: bool = False, events: bool = False,
        op: str = "turn", gate_s: float = 1.0, deadline_s: float | None = None, device_s: float | None = None,
    ) -> Turn:  # fmt: skip
        """One whole turn: `op` is what the runner is asked for. `apart` needs `calls == 1`.

        `device_s`: of a turn that is not gated, how long a GPU may take once everything is enqueued, where `deadline_s`
        leaves time for what a first call compiles; who does nothing in it is not waited for.

        Raises:
            GateError: gated, and the arm did not enqueue within `gate_s`; it is idle again.
            ArmError: the arm failed.
        """
        arm.ask("collect", timeout_s=_COLLECT_S)
        slots.poison(first, calls)
        sample = self._sample(slots.outputs, first, calls)
        self._synchronize()
        deadline_s = deadline_s or self.call_s * calls
        must_work = device_s is not None
        gc.disable()
        try:
            if self._device == "cpu":
                return self._stopped_turn(
                    arm, slots, op, first, calls, deadline_s, sample, apart=apart, must_work=must_work
                )
            gate = slots.next_gate() if gated else None
            if gate is not None:
                arm.send(op, first=first, calls=calls, gate=gate, announce=True, apart=apart, events=False)
                self._await_enqueued(arm, slots, gate, first, calls, gate_s, deadline_s)
                time.sleep(0.0005)  # let the runner reach its synchronize
            started = time.perf_counter_ns()
            copy_slots(self._store.masters, slots.inputs, first, calls)
            if gate is not None:
                slots.open_gate(gate)
            else:
                self._synchronize()
                announce = device_s is not None
                arm.send(op, first=first, calls=calls, gate=None, announce=announce, apart=apart, events=events)
                if device_s is not None:
                    _expect_enqueued(arm, arm.receive(deadline_s, must_work=must_work))
                    deadline_s = min(deadline_s, device_s)
            computed = None
            if apart:
                self._await_computed(arm, deadline_s)
                computed = time.perf_counter_ns()
                self._hide_inputs(arm, slots, first, sample)  # on the copy's time: the device may still be at work
                arm.send("copy")
            done = arm.receive(deadline_s)
            at_done = _words(slots.outputs)[sample]
            copy_slots(slots.outputs, self._store.snapshot, first, calls)
            self._synchronize()
            ended = time.perf_counter_ns()
        finally:
            gc.enable()
        self._expect_unchanged(arm, at_done, sample)
        return _turn(started, computed, computed, ended, done)

    def _stopped_turn(
        self, arm: Arm, slots: Slots, op: str, first: int, calls: int, deadline_s: float, sample: torch.Tensor, *,
        apart: bool, must_work: bool,
    ) -> Turn:  # fmt: skip
        arm.pause()
        arm.settle()
        copy_slots(self._store.masters, slots.inputs, first, calls)
        # Waits in the socket.
        arm.send(op, first=first, calls=calls, gate=None, announce=False, apart=apart, events=False)
        arm.expect_still()
        started = time.perf_counter_ns()
        arm.resume()
        computed = copying = seen = None
        if apart:
            said = self._await_computed(arm, deadline_s)
            arm.pause()
            computed = time.perf_counter_ns()
            arm.settle()
            self._hide_inputs(arm, slots, first, sample)
            seen = look(arm.paused, said.get("outputs"), slots.outputs.layout)
            arm.send("copy")
            arm.expect_still()
            copying = time.perf_counter_ns()
            arm.resume()
        done = arm.receive(deadline_s, must_work=must_work)
        arm.pause()
        ended = time.perf_counter_ns()
        arm.settle()
        at_done = _words(slots.outputs)[sample]
        copy_slots(slots.outputs, self._store.snapshot, first, calls)
        arm.expect_still()
        arm.resume()
        self._expect_unchanged(arm, at_done, sample)
        if apart:
            self._expect_seen(arm, seen, first)
        return _turn(started, computed, copying, ended, done)

    def _await_computed(self, arm: Arm, deadline_s: float) -> Message:
        """What the runner says when forward is over; it copies only after the answer to that."""
        said = arm.receive(deadline_s)
        if not said.get("computed"):
            raise ArmError("malformed", f"the {arm.role} answered out of turn")
        return said

    def _expect_seen(self, arm: Arm, seen: Look | None, slot: int) -> None:
        """What was copied is what was there before: all of forward's work was done by then."""
        if arm.role != "submission":
            self.sees_memory |= seen is not None
        elif self.sees_memory and (seen is None or not seen.saw(self._store.snapshot.slot(slot))):
            raise ArmError("malformed", f"the {arm.role}'s output was not there yet when forward was over")

    def _hide_inputs(self, arm: Arm, slots: Slots, slot: int, sample: torch.Tensor) -> None:
        """Overwrites a slot's inputs after forward, before the output is copied. Raises ArmError: it is there already.

        What goes on computing meanwhile cannot leave its results where they are wanted, and then has them to copy, too.
        """
        if self.hides_inputs:
            slots.inputs.slot(slot).fill_(0xFF)
            self._synchronize()
        if not bool((_words(slots.outputs)[sample] == -1).all()):
            raise ArmError("malformed", f"the {arm.role} wrote its output before it was to be copied")

    def _sample(self, outputs: Arena, first: int, calls: int) -> torch.Tensor:
        """Random 32-bit words of the turn's output slots."""
        words = outputs.layout.slot_bytes // 4
        return torch.randint(
            first * words, (first + calls) * words, (_SAMPLE_WORDS,), generator=self._random, device=self._device
        )

    def _expect_unchanged(self, arm: Arm, at_done: torch.Tensor, sample: torch.Tensor) -> None:
        """The snapshot takes time: what a runner that said "done" too early writes meanwhile would get into it."""
        snapshot = _words(self._store.snapshot)
        if not torch.equal(at_done, snapshot[sample.to(snapshot.device)].to(at_done.device)):
            raise ArmError("malformed", f"the {arm.role}'s outputs still changed after it said that it was done")

    def _await_enqueued(
        self, arm: Arm, slots: Slots, gate: int, first: int, calls: int, gate_s: float, deadline_s: float
    ) -> None:
        try:
            answer = arm.receive(gate_s)
        except ArmError as e:
            copy_slots(self._store.masters, slots.inputs, first, calls)  # an index that is hidden is no index
            slots.open_gate(gate)  # whatever is behind it may go; these inputs are not timed again
            self._synchronize()
            if e.kind != "timeout":
                raise
            while arm.receive(deadline_s).get("enqueued"):
                pass
            raise GateError from None
        try:
            _expect_enqueued(arm, answer)
        except ArmError:
            slots.open_gate(gate)
            raise

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def _expect_enqueued(arm: Arm, answer: Message) -> None:
    if not answer.get("enqueued"):
        raise ArmError("malformed", f"the {arm.role} answered out of turn")


def _turn(started: int, computed: int | None, copying: int | None, ended: int, done: Message) -> Turn:
    """From nanoseconds and the runner's last answer."""
    events, products = _numbers(done.get("event_ms")), done.get("products")
    products = products if type(products) is int else 0
    if computed is None or copying is None:
        return Turn((ended - started) / 1e6, 0.0, events, products)
    return Turn((computed - started) / 1e6, (ended - copying) / 1e6, events, products)


def _words(arena: Arena) -> torch.Tensor:
    return arena.flat.view(torch.int32)


def _numbers(value: object) -> list[float]:
    """A runner's own event times, if that is what they are: diagnostics only."""
    if not isinstance(value, list):
        return []
    return [float(item) for item in value if isinstance(item, int | float) and 0 <= item < 1e9]
