"""What a runner held on a device is what that gets back when it ends, whatever the runner says."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbenv.sandbox.judge import memory
from kbenv.sandbox.judge.compare import Comparison
from kbenv.sandbox.judge.memory import Peak, least_peak, peak, pinned_bytes, unseen_bytes, unseen_in_all
from kbenv.sandbox.judge.proc import private_bytes, shared_bytes
from kbenv.sandbox.layout import Arena
from tests.arenas import arena_of

MIB = 1 << 20
CONTEXT = 500 * MIB


class Device:
    """Gives back what a runner held a few looks after it has ended, as some drivers do."""

    def __init__(self, held: dict[str, int], *, looks: int) -> None:
        self.held, self.looks = held | {"null": 2500 * MIB}, looks
        self.free, self.due = 1000 * MIB, [(0, 0)]

    def look(self) -> int:
        self.due = [(left - 1, nbytes) for left, nbytes in self.due]
        self.free += sum(nbytes for left, nbytes in self.due if left <= 0)
        self.due = [(left, nbytes) for left, nbytes in self.due if left > 0]
        return self.free

    def trim(self, op: str, timeout_s: float) -> None:
        assert op == "trim"
        self.held["null"] = 0  # the output that it copies from

    def stop_arms(self, *roles: str) -> None:
        self.due += [(self.looks, CONTEXT + self.held.get(role, 0)) for role in roles]


@pytest.fixture(autouse=True)
def nothing_stirred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_stir", lambda: None)


def end_runners(held: dict[str, int], looks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], int]:
    device = Device(held, looks=looks)
    monkeypatch.setattr(memory, "free_bytes", device.look)
    null = SimpleNamespace(ask=device.trim)
    job: Any = SimpleNamespace(
        stop_arms=device.stop_arms, arm={"null": null}.__getitem__, reference_faults=contextlib.nullcontext
    )
    peaks = {"submission": Peak(0, reserved=0), "reference": Peak(2560 * MIB, reserved=2600 * MIB)}
    return memory._end_runners(job, peaks)


@pytest.mark.parametrize("looks", [1, 40])
def test_what_a_device_gets_back_late_is_waited_for(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"submission": 2500 * MIB, "reference": 2600 * MIB}
    assert end_runners(held, looks, monkeypatch) == (held, 5100 * MIB + 3 * CONTEXT)


def test_what_comes_too_late_to_be_told_apart_is_seen_in_all_of_it() -> None:
    total = 5100 * MIB + 3 * CONTEXT
    assert unseen_in_all(total, 0, 2600 * MIB) > 1000 * MIB
    assert unseen_in_all(total, 2500 * MIB, 2600 * MIB) == 0


def test_a_device_that_others_use_too_is_not_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_RETURN_S", 0.05)
    monkeypatch.setattr(memory, "free_bytes", lambda: 0)
    assert memory.given_back(100 * MIB, 1) == -100 * MIB


@pytest.mark.parametrize(
    ("held", "reported", "unseen"),
    [
        (2600, 2560, 0),  # the allocator's rounding
        (3200, 2560, 0),  # and its fragments: a quarter
        (2500, 0, 2500 - 100 - 256),  # held behind the allocator
        (5060, 2560, 5060 - 2560 - 640 - 256),  # and beside what it reports
    ],
)
def test_what_is_held_beyond_the_reported_peak_counts_past_what_is_usual(held: int, reported: int, unseen: int) -> None:
    assert unseen_bytes(held * MIB, reported * MIB, 2660 * MIB, 2560 * MIB) == unseen * MIB


def test_what_the_reference_holds_beyond_its_peak_the_submission_may() -> None:
    assert unseen_bytes(1900 * MIB, 400 * MIB, 2000 * MIB, 500 * MIB) == 0
    assert unseen_bytes(1900 * MIB, 400 * MIB, 500 * MIB, 500 * MIB) == (1900 - 400 - 100 - 256) * MIB


def test_host_memory_that_a_device_can_reach_counts_beyond_the_references() -> None:
    usual = Peak(0, mapped=80 * MIB, private=300 * MIB)
    assert pinned_bytes(Peak(0, mapped=140 * MIB, private=800 * MIB), usual) == 0
    assert pinned_bytes(Peak(0, mapped=592 * MIB, private=300 * MIB), usual) == (512 - 64) * MIB
    assert pinned_bytes(Peak(0, mapped=592 * MIB, private=2300 * MIB), usual) == (512 - 64 + 2000 - 512) * MIB
    assert pinned_bytes(usual, Peak(0, mapped=592 * MIB)) == 0


MAPS = """
import mmap, sys
shared, readable = mmap.mmap(-1, 64 << 20), mmap.mmap(-1, 32 << 20, prot=mmap.PROT_READ)
private = bytearray(b"x" * (48 << 20))
print("there", flush=True)
sys.stdin.read()
"""


def test_what_a_process_maps_shared_and_what_it_has_to_itself_is_in_proc() -> None:
    """Shared memory counts where no page of it was touched: pages of a device's are not resident."""
    with subprocess.Popen([sys.executable, "-c", MAPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert shared_bytes(process.pid) == 64 * MIB
        assert 48 * MIB <= private_bytes(process.pid) < 80 * MIB
        process.kill()
    assert shared_bytes(process.pid) == private_bytes(process.pid) == 0  # it is gone


def test_an_output_takes_memory_of_its_own_where_the_references_does() -> None:
    inputs, outputs = 1000 * MIB, 800 * MIB
    assert least_peak(2600 * MIB, inputs, outputs) == 1800 * MIB
    assert least_peak(1000 * MIB, inputs, outputs) == 1000 * MIB  # the reference returns a view of its input


class Runner:
    """On the CPU: notes what lies in its input slot in each call, and returns twice that."""

    def __init__(self, inputs: Arena, outputs: Arena) -> None:
        self.inputs, self.outputs = inputs.views(0)[0], outputs.views(0)[0]
        self.seen: list[float] = []

    def ask(self, op: str, timeout_s: float) -> dict[str, Any]:
        if op == "measure_memory":
            self.seen.append(float(self.inputs[0]))
            self.outputs.copy_(2 * self.inputs)
        return {}

    def helper_bytes(self) -> int:
        return 3 * MIB

    def reset_resident_peak(self) -> bool:
        return True

    def resident_peak_bytes(self) -> int:
        return (100 + 10 * len(self.seen)) * MIB


def test_inputs_of_the_call_that_is_measured_have_not_been_seen_before_it() -> None:
    """With a single slot, too: of inputs seen twice an output could be kept, and handed out at no cost."""
    inputs, outputs, masters, snapshot = (arena_of([torch.full((1000,), value)]) for value in (1.0, 0.0, 5.0, 0.0))
    runner = Runner(inputs, outputs)
    slots: Any = SimpleNamespace(
        inputs=inputs, outputs=outputs, lent_to=contextlib.nullcontext, poison=lambda *_: outputs.flat.fill_(0xFF)
    )
    job: Any = SimpleNamespace(
        arm=lambda _: runner, device="cpu", store=SimpleNamespace(masters=masters, snapshot=snapshot),
        signature=SimpleNamespace(inputs=masters.layout),
    )  # fmt: skip
    assert peak(job, "submission", slots, 1.0) == Peak(masters.layout.slot_bytes + (3 + 10) * MIB)
    assert runner.seen == [1.0, 5.0]
    assert snapshot.views(0)[0].tolist() == [10.0] * 1000


def test_the_reference_is_measured_when_no_comparison_can_make_it_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes after it was measured would be taken for contexts, or for the submission's."""
    done: list[str] = []

    def measured(job: Any, role: str, *_: Any) -> Peak:
        done.append(role)
        return Peak(5 * MIB)

    def judged(first: int, calls: int, found: str) -> Comparison:
        done.append(f"compare {found} of {first}")
        return Comparison(elements=1)

    @contextlib.contextmanager
    def others_paused(role: str) -> Iterator[None]:
        done.append(f"pause all but {role}")
        yield
        done.append("resume")

    monkeypatch.setattr(memory, "peak", measured)
    monkeypatch.setattr(memory, "copy_slots", lambda *_: done.append("earlier inputs"))
    job: Any = SimpleNamespace(
        protocol={"memory": True}, spares=SimpleNamespace(stop=lambda: None), flags=[], result={}, device="cpu",
        prepare_timed=lambda *_, expect: done.append("prepare"), trusted=None, remaining=lambda *_: 1.0,
        lent=SimpleNamespace(inputs=None), clock=SimpleNamespace(call_s=1.0), truth=SimpleNamespace(judge_timed=judged),
        store=SimpleNamespace(keep_snapshot=lambda: "snapshot", masters=None), reference_faults=contextlib.nullcontext,
        submission_faults=contextlib.nullcontext, others_paused=others_paused,
        signature=SimpleNamespace(inputs=SimpleNamespace(slot_bytes=MIB), outputs=SimpleNamespace(leaves=[])),
    )  # fmt: skip
    memory.measure_memory(job)
    assert done == [
        "earlier inputs", "prepare", "submission", "compare snapshot of 0", "pause all but reference", "reference",
        "resume",
    ]  # fmt: skip
    assert job.result["memory"]["ratio"] == 1.0
