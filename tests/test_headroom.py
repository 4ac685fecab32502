"""The script that measures what there is to gain says what to drop, and goes on where it ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbenv.problems import list_problems

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        import headroom
    finally:
        sys.path.remove(str(FOLDER))
    module: ModuleType = headroom
    return module


def row(script: ModuleType, id: str, **more: Any) -> dict[str, Any]:
    (problem,) = list_problems(id)
    return {
        "id": id, "key": script.key(problem, "cpu"), "level": problem.level, "category": problem.category,
        "eager_ms": 1.0, "roofline_ms": 0.5, "peak_bytes": 10**9, "rms": [1.0], "finite": True, "bytes_per_s": 4e12,
        "flop_per_s": 3e14, **more,
    }  # fmt: skip


def run(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> str:
    record, out = tmp_path / "record.jsonl", tmp_path / "out.md"
    record.write_text("".join(json.dumps(one) + "\n" for one in rows) + '{"key": "cut o')
    pattern = ",".join(one["id"] for one in rows)
    options = ["--device", "cpu", "--record", str(record), "--out", str(out), "--budget-s", "0"]
    monkeypatch.setattr(sys, "argv", ["headroom.py", pattern, *options])
    assert script.main() == 0  # nothing is left, so that nothing runs
    return out.read_text()


def test_what_is_at_the_roofline_is_to_be_an_exercise_on_levels_1_and_2_alone(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ("core/level1/relu", "core/level1/matmul", "core/level2/linear_softmax", "core/level4/adam_step")
    rows = [row(script, id, roofline_ms=0.95) for id in ids]
    rows[2]["roofline_ms"] = 0.5
    text = run(script, tmp_path, monkeypatch, rows)
    assert "to be exercises (`problems/loaders/core.py`): core/level1/matmul, core/level1/relu. " in text
    assert "Exercises that are above: none." in text


def test_sizes_that_do_not_fit_and_compilations_that_fail_are_named(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row(script, "core/level1/matmul", eager_ms=12.0, compiled_ms=6.0),
        row(script, "core/level2/linear_softmax", peak_bytes=30 * 10**9, compiled_ms=2.0),
        row(script, "core/level4/adam_step", compile_error="KeyError: x", finite=False),
    ]
    text = run(script, tmp_path, monkeypatch, rows)
    assert "Outside 0.1 to 10 ms, or above 20 GB: core/level1/matmul, core/level2/linear_softmax." in text
    assert "| core/level1/matmul | 12 | 6 | 0.5 | 24.00 | 2.00 |" in text
    assert "Slower under torch.compile than in eager mode: core/level2/linear_softmax." in text
    assert "Not compiled: core/level4/adam_step (KeyError: x)." in text
    assert "Not finite: core/level4/adam_step." in text


def test_what_the_budget_did_not_reach_is_left_for_another_run(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.md"
    options = ["core/level1/matmul", "--device", "cpu", "--workers", "1", "--budget-s", "0", "--no-compile"]
    monkeypatch.setattr(sys, "argv", ["h", *options, "--record", str(tmp_path / "r"), "--out", str(out)])
    assert script.main() == 1
    assert "Not reached within the budget: core/level1/matmul." in out.read_text()


def test_a_problem_is_measured_at_the_sizes_of_its_device(script: ModuleType) -> None:
    from contextlib import nullcontext

    (problem,) = list_problems("core/level4/streaming_moments")
    found = script.measure(problem, "cpu", False, nullcontext)
    assert found["eager_ms"] > 0
    assert found["finite"]
    assert len(found["rms"]) == 1
