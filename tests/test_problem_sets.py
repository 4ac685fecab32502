"""The script that runs other sets' references keeps them apart, and tells what became of each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "problem_sets.py"
PROBLEM = """\
import os
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
        return x + 1


def get_inputs():
    return [torch.rand({size})]


def get_init_inputs():
    return []
"""
FORWARDS = {
    1: ("pass", 8), 2: ("pass", 1 << 40), 3: ("raise KeyError('a')", 8), 4: ("import no_such_package", 8),
    5: ("raise RuntimeError('Found no NVIDIA driver')", 8), 6: ("while True: pass", 8), 7: ("os._exit(9)", 8),
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("problem_sets", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["problem_sets"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_each_reference_has_a_process_of_its_own_and_a_limit(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TIME_S", 3.0)
    (tmp_path / "level1").mkdir()
    for number, (forward, size) in FORWARDS.items():
        source = PROBLEM.format(forward=forward, size=size)
        (tmp_path / "level1" / f"{number}_a.py").write_text(source)
    (tmp_path / "level1" / "8_broken.py").write_text("class Model: ...\n")
    found = script.examine(tmp_path, "*", 0)
    assert (found.problems, found.loaded) == (8, 7)
    assert found.states == {"cpu": 1, "meta": 1, "gpu": 1, "package": 1, "limit": 2, "fails": 1}
    assert found.failed == ["kernelbench/level1/3: KeyError: 'a'"]
    assert "found no get_inputs" in found.refused[0]
    text = script.report([found], judged=False)
    assert "| kernelbench | unknown | MIT | 8 | 7 | 256 | 1 | 1 | 1 | 1 | 2 | 1 | - |" in text
    assert "- kernelbench/level1/3: KeyError: 'a'" in text


def test_what_is_on_record_is_read_back(script: ModuleType, tmp_path: Path) -> None:
    assert script.read_record(None) == script.read_record(tmp_path / "none") == {}
    record = tmp_path / "record.jsonl"
    record.write_text('{"folder": "a", "name": "a", "version": null, "licence": "MIT", "problems": 3}\n')
    assert script.read_record(record) == {"a": script.Found("a", None, "MIT", problems=3)}
