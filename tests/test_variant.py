"""Variants of the reference: whose turns count for whom, over a scripted job."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from kbenv.protocol import OFF, ON, get_protocol
from kbenv.sandbox.judge import variant
from kbenv.sandbox.judge.arm import ArmError
from kbenv.sandbox.judge.clock import Turn
from kbenv.sandbox.judge.memory import Peak
from kbenv.sandbox.judge.timing import BASELINE

NULL_MS = 0.5
FLAGS = {"eager-fp32": OFF.model_dump(), "eager-tf32": ON.model_dump()}


class Job:
    """The reference takes 8 ms a call without TF32 and 2 ms with it, and 1 ms compiled; every turn costs NULL_MS."""

    device = "cpu"
    forward_ms = 8.0

    def __init__(self, calls: int = 2, fails_at: str | None = None) -> None:
        self.protocol = get_protocol("verified").model_dump(mode="json")
        self.plan = SimpleNamespace(slots=4, calls=calls, exclusive=False)
        self.problem = {"source": ""}
        self.seeds = SimpleNamespace(construction=42)
        self.result: dict[str, Any] = {}
        self.flags: list[str] = []
        self.stopped: list[str] = []
        self.store = SimpleNamespace(masters=None)
        self.trusted = SimpleNamespace(lent_to=lambda arm: contextlib.nullcontext(), inputs=None)
        self.clock = SimpleNamespace(turn=self.turn)
        self._fails_at = fails_at
        roles = ("reference", "null")
        self._arms = {role: SimpleNamespace(role=role, ask=self.ask, tf32=ON.model_dump()) for role in roles}

    def arm(self, role: str) -> Any:
        return self._arms[role]

    def start_arm(self, role: str) -> Any:
        self._arms[role] = SimpleNamespace(role=role, ask=self.ask)
        return self._arms[role]

    def stop_arm(self, role: str) -> None:
        self.stopped.append(role)

    def ask(self, op: str, *, timeout_s: float, **content: Any) -> dict[str, Any]:
        if op == self._fails_at:
            raise ArmError("runtime", f"{op} failed")
        if op == "tf32":
            self.arm("reference").tf32 = content["tf32"]
        return {"tf32": {"matmul": "tf32" if content.get("tf32", {}).get("matmul") else "ieee"}}

    def turn(self, arm: Any, *_: Any, calls: int, **__: Any) -> Turn:
        call_ms = {"null": 0.0, BASELINE: 1.0}.get(arm.role)
        if call_ms is None:
            call_ms = 2.0 if arm.tf32["matmul"] else 8.0
        return Turn(NULL_MS + calls * call_ms)

    def prepare_timed(self, first: int, calls: int, *, expect: bool) -> None:
        self.arm("reference").tf32 = ON.model_dump()  # as the real one leaves it

    def redraw(self, known: None) -> None: ...

    def synchronize(self) -> None: ...

    def gate_s(self, calls: int) -> float:
        return 1.0

    others_paused = staticmethod(lambda role: contextlib.nullcontext())
    reference_faults = staticmethod(contextlib.nullcontext)


@pytest.fixture(autouse=True)
def peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant, "peak", lambda *_: Peak(1 << 20))
    monkeypatch.setattr(variant, "copy_slots", lambda *_: None)


@pytest.mark.parametrize("calls", [1, 2])
def test_each_eager_variant_has_the_turns_under_its_own_flags(calls: int) -> None:
    found = variant.measure_eager(Job(calls), FLAGS)  # type: ignore[arg-type]
    assert found["eager-fp32"]["latency_ms"] == pytest.approx(8.0)
    assert found["eager-tf32"]["latency_ms"] == pytest.approx(2.0)
    assert len(found["eager-fp32"]["turns_ms"]) == len(found["eager-tf32"]["turns_ms"]) >= 15
    assert [found[name]["tf32"]["matmul"] for name in FLAGS] == ["ieee", "tf32"]
    assert found["eager-fp32"]["peak_bytes"] == 1 << 20
    assert found["eager-fp32"]["error"] is None


def test_one_variant_alone_can_be_measured() -> None:
    found = variant.measure_eager(Job(), {"eager-tf32": ON.model_dump()})  # type: ignore[arg-type]
    assert list(found) == ["eager-tf32"]
    assert found["eager-tf32"]["latency_ms"] == pytest.approx(2.0)


def test_the_compiled_one_is_a_process_of_its_own_that_ends() -> None:
    job = Job()
    variant.measure_compiled(job)  # type: ignore[arg-type]
    assert job.result["compiled_reference_latency_ms"] == pytest.approx(1.0)
    assert job.stopped == [BASELINE]
    assert job.flags == []


@pytest.mark.parametrize("op", ["load", "compile"])
def test_what_fails_to_compile_has_no_latency_and_a_reason(op: str) -> None:
    job = Job(fails_at=op)
    variant.measure_compiled(job)  # type: ignore[arg-type]
    assert job.result["compiled_reference_latency_ms"] is None
    assert job.flags == [f"torch.compile of the reference has no latency: {op} failed"]
    assert job.stopped == [BASELINE]
