"""What a runner held on a device is what that gets back when it ends, whatever the runner says."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from kbenv.sandbox.judge import memory
from kbenv.sandbox.judge.memory import Peak, least_peak, unseen_bytes, unseen_in_all

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
    monkeypatch.setattr(memory, "_free", device.look)
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
    monkeypatch.setattr(memory, "_free", lambda: 0)
    assert memory._given_back(100 * MIB, 1) == -100 * MIB


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


def test_an_output_takes_memory_of_its_own_where_the_references_does() -> None:
    inputs, outputs = 1000 * MIB, 800 * MIB
    assert least_peak(2600 * MIB, inputs, outputs) == 1800 * MIB
    assert least_peak(1000 * MIB, inputs, outputs) == 1000 * MIB  # the reference returns a view of its input
