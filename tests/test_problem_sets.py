"""The script that runs other sets' references keeps them apart, and tells what became of each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kbenv.problems import load_problem

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
    found = script.examine(tmp_path, "*", 256, script.Record(None))
    states = {row["id"].rsplit("/", 1)[1]: row["state"] for row in found.rows}
    assert states == {
        "1": "runs", "2": "meta", "3": "fails", "4": "package", "5": "gpu", "6": "limit", "7": "limit", "8": "refused",
    }  # fmt: skip
    (failed,) = [row["words"] for row in found.rows if row["state"] == "fails"]
    assert failed == "KeyError: 'a'"


def test_what_is_on_record_is_not_run_again(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    row = {"folder": tmp_path.name, "id": "kernelbench/level1/1", "state": "runs", "words": "", "ms": 1.0, "case": None}
    script.Record(path).put(row)
    with path.open("a") as lines:
        lines.write('{"folder": "cut o')  # interrupted
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_a.py").write_text(PROBLEM.format(forward="raise KeyError('a')", size=8))
    assert script.examine(tmp_path, "*", 256, script.Record(path)).rows == [row]


def test_smaller_sizes_keep_what_is_small_and_what_is_no_size(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    constants = "batch_size = 128\nfeatures = 4096 * 2\ngroups = 16\nscale = 0.5\nshape = (2048, 3)\nname = 'x' * 2\n"
    path.write_text(constants + PROBLEM.format(forward="pass", size="features"))
    cut = script.smaller(load_problem(str(path)), 16, 512).source
    assert cut.startswith(
        "batch_size = 4\nfeatures = 512\ngroups = 16\nscale = 0.5\nshape = (128, 3)\nname = 'x' * 2\n"
    )


def test_references_are_judged_as_their_own_answers(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    random = "x = x + torch.rand_like(x)"
    another = (  # in every process, and the same there at every call
        "import time; drawn = torch.Generator().manual_seed(time.time_ns()); "
        "self.kept = self.__dict__.get('kept', torch.rand(x.shape, generator=drawn)); x = x + self.kept"
    )
    for number, forward in enumerate(("pass", another, random), start=1):
        (tmp_path / "level1" / f"{number}_a.py").write_text(PROBLEM.format(forward=forward, size=64))
    path = tmp_path / "record.jsonl"
    found = script.examine(tmp_path, "*", 256, script.Record(path))
    with script.Judges() as judges:
        script.judge(found, tmp_path, script.Record(path), judges, float("inf"))
    assert [row["verdict"] for row in found.rows] == ["PASSED", "WRONG_VALUE", "unjudged"]
    assert "1 of 2" in script.report(found=[found], largest_mib=256, command=["--judge"])


def test_what_a_budget_leaves_over_is_loaded_and_said_to_be_not_reached(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    for number in (1, 2):
        (tmp_path / "level1" / f"{number}_a.py").write_text(PROBLEM.format(forward="pass", size=8))
    (tmp_path / "level1" / "3_broken.py").write_text("class Model: ...\n")
    path = tmp_path / "record.jsonl"
    script.examine(tmp_path, "*/1", 256, script.Record(path))
    found = script.examine(tmp_path, "*", 256, script.Record(path), ends_at=0.0)
    assert [row["state"] for row in found.rows] == ["runs", "loads", "refused"]
    assert len(path.read_text().splitlines()) == 1  # a later run reaches it
    table = script.report(found=[found], largest_mib=256, command=[])
    (line,) = [line for line in table.splitlines() if line.startswith("| kernelbench |")]
    cells = dict(zip(script.HEADERS, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
    assert (cells["problems"], cells["load"], cells["run"], cells["not reached"]) == ("3", "2", "1", "2")
