"""Whose fault it is when a GPU's memory runs out, with numbers of ours in the place of a device's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbenv.sandbox.judge import memory
from kbenv.sandbox.judge.faults import InfrastructureFault, SubmissionFault
from kbenv.sandbox.judge.room import charged_to_its_holder, expect_room

MIB, GIB = 1 << 20, 1 << 30
LACKING = InfrastructureFault("memory", "the reference needs more")


class Device:
    """`free` bytes, and `held` more once the submission is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, free: int, held: int = 0) -> None:
        self.free, self.held = free, held
        monkeypatch.setattr(memory, "_RETURN_S", 0.05)
        monkeypatch.setattr(memory, "_stir", lambda: None)
        monkeypatch.setattr(memory, "free_bytes", lambda: self.free)

    def job(self, device: str = "cuda", *, has_submission: bool = True) -> Any:
        def stop() -> None:
            self.free, self.held = self.free + self.held, 0

        plan = SimpleNamespace(runner_bytes=2 * GIB, have_bytes=100 * GIB, need_bytes=40 * GIB)
        return SimpleNamespace(
            device=device, plan=plan, stage="timing", arm=lambda _: SimpleNamespace(stop=stop),
            has=lambda _: has_submission,
        )  # fmt: skip


def test_a_submission_that_found_no_memory_has_itself_to_blame_where_a_runner_would_find_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Device(monkeypatch, free=3 * GIB)
    expect_room(5 * GIB // 2)
    Device(monkeypatch, free=1700 * MIB)
    with pytest.raises(InfrastructureFault, match=r"1\.66 GiB are free without it.* takes 2\.50: something else"):
        expect_room(5 * GIB // 2)


def test_room_that_a_driver_gives_back_late_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, free=0)
    looks = iter([100 * MIB, 100 * MIB, 100 * MIB])
    monkeypatch.setattr(memory, "free_bytes", lambda: next(looks, 3 * GIB))
    expect_room(5 * GIB // 2)


@pytest.mark.parametrize("fault", [LACKING, torch.OutOfMemoryError("the judge's own"), MemoryError("no room")])
def test_what_the_submission_holds_and_others_lack_is_its_fault(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, free=100 * MIB, held=60 * GIB)
    with pytest.raises(SubmissionFault, match=r"holds 60\.00 GiB") as raised, charged_to_its_holder(device.job()):
        raise fault
    assert (raised.value.status, raised.value.stage) == ("OUT_OF_MEMORY", "timing")
    assert raised.value.__cause__ is fault


@pytest.mark.parametrize("held", [0, 3 * GIB, 30 * GIB])
def test_a_submission_that_leaves_others_room_is_not_charged(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to half of what the plan leaves over an honest one may hold: something else has the rest."""
    device = Device(monkeypatch, free=100 * MIB, held=held)
    with pytest.raises(InfrastructureFault) as raised, charged_to_its_holder(device.job()):
        raise LACKING
    assert raised.value is LACKING


@pytest.mark.parametrize("case", ["another fault", "the submission is gone", "a CPU"])
def test_other_faults_are_left_as_they_are(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, free=100 * MIB, held=60 * GIB)
    job = device.job("cpu" if case == "a CPU" else "cuda", has_submission=case != "the submission is gone")
    fault = InfrastructureFault("reference", "it fails") if case == "another fault" else LACKING
    with pytest.raises(InfrastructureFault) as raised, charged_to_its_holder(job):
        raise fault
    assert raised.value is fault
    assert device.held > 0  # nothing was stopped for it
