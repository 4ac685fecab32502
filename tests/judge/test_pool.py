"""A pool with real judges: the same verdicts as one evaluator's, and an end that leaves no process."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kbenv.pool import EvaluatorPool, evaluate_many, open_pool
from kbenv.verdict import Status
from tests.fakes import SUBMISSION_SOURCE, make_problem
from tests.judge.evaluators import make_protocol

PROBLEM = make_problem()
ENDLESS = (
    "import time\n\n\nclass ModelNew:\n    def forward(self, x):\n        time.sleep(600)\n\n    __call__ = forward\n"
)


def descendants() -> set[int]:
    """Judges among this process's children and theirs, save zombies; other tests' warm ones too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = set(), [os.getpid()]
    while left:
        for child in children.get(left.pop(), []):
            left.append(child)
            with suppress(OSError):  # it has ended since
                if b"judge" in (Path("/proc") / str(child) / "cmdline").read_bytes():
                    found.add(child)
    return found


def test_two_judges_share_the_work_and_leave_nothing(tmp_path: Path) -> None:
    before = descendants()
    sources = [SUBMISSION_SOURCE, SUBMISSION_SOURCE.replace("min=0", "min=0.0"), "class ModelNew: ...", None]
    jobs = [(PROBLEM, source) for source in (*sources, SUBMISSION_SOURCE)]
    rules = {"protocol": make_protocol("verified brisk"), "sandbox": "process"}
    found = {o.index: o for o in evaluate_many(jobs, devices=["cpu", "cpu"], keep=tmp_path, **rules)}
    statuses = [found[index].verdict.status for index in range(5)]  # type: ignore[union-attr]
    assert statuses == [Status.PASSED, Status.PASSED, Status.LOAD_ERROR, Status.FORMAT_ERROR, Status.PASSED]
    assert found[0].verdict is found[4].verdict
    assert descendants() <= before
    started = time.monotonic()
    again = {o.index: o for o in evaluate_many(jobs, devices=["cpu"], keep=tmp_path, **rules)}
    assert [again[index].verdict for index in range(5)] == [found[index].verdict for index in range(5)]
    assert time.monotonic() - started < 30  # one judge that only says what machine it is on


def test_an_interrupt_in_the_middle_of_a_job_ends_at_once_and_leaves_no_process() -> None:
    before = descendants()
    phases: list[str] = []
    pool: EvaluatorPool
    with open_pool(
        ["cpu"],
        protocol=make_protocol("verified brisk"),
        sandbox="process",
        on_phase=lambda _, phase: phases.append(phase),
    ) as pool:
        future = pool.submit(PROBLEM, ENDLESS)
        while "standard" not in phases:
            time.sleep(0.01)
            assert not future.done(), future
        assert descendants() - before
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt), pool:
            raise KeyboardInterrupt
        assert time.monotonic() - started < 10
    assert descendants() <= before
    assert "told to stop" in str(future.exception()) or "judge was lost" in str(future.exception())
