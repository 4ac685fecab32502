"""A turn on the judge's clock, with a runner and a gate of ours in the place of a GPU's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbenv.sandbox.judge.arm import ArmError
from kbenv.sandbox.judge.clock import Clock, GateError
from kbenv.sandbox.layout import Arena, Layout, Leaf

INDICES = torch.tensor([2, 0, 1, 3])


def arena() -> Arena:
    layout = Layout([Leaf((4,), (1,), "int64")])
    return Arena(torch.full((layout.slot_bytes,), 0xFF, dtype=torch.uint8), layout, 1)


class Slots:
    """The runner's memory, as a turn whose inputs were hidden has left it."""

    def __init__(self) -> None:
        self.inputs, self.outputs = arena(), arena()
        self.seen: list[list[int]] = []

    def poison(self, first: int, count: int) -> None:
        self.outputs.flat.fill_(0xFF)

    def next_gate(self) -> int:
        return 1

    def open_gate(self, value: int) -> None:
        self.seen.append(self.inputs.views(0)[0].tolist())


class Waiting:
    """A runner whose forward waits for the device, and so for the gate."""

    role = "submission"

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def ask(self, op: str, **content: Any) -> dict[str, Any]:
        return {}

    def send(self, op: str, **content: Any) -> None: ...

    def receive(self, timeout_s: float) -> dict[str, Any]:
        if not self._slots.seen:
            raise ArmError("timeout", "no answer")
        return {}


def test_what_waits_behind_a_gate_that_is_given_up_finds_inputs_that_are_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hidden ones are -1 in every integer, at which an honest kernel may stop, or fail."""
    clock = Clock("cpu", SimpleNamespace(masters=arena(), snapshot=arena()), 1.0, hides_inputs=True)  # type: ignore[arg-type]
    monkeypatch.setattr(clock, "_device", "cuda")
    monkeypatch.setattr(clock, "_sample", lambda *_: torch.tensor([0]))
    monkeypatch.setattr(clock, "_synchronize", lambda: None)
    clock._store.masters.views(0)[0].copy_(INDICES)
    slots = Slots()
    with pytest.raises(GateError):
        clock.turn(Waiting(slots), slots, first=0, calls=1, gated=True)  # type: ignore[arg-type]
    assert slots.seen == [INDICES.tolist()]
