"""What the measurement of a queue says is what happened in it."""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.queued import IDLE, Measured, Timeline, busy_by_phase, make_jobs, render, sampled, seconds_by_phase
from kbenv.build_worker import may_build
from tests.fakes import make_problem, make_verdict

ENTERED = [(10.0, IDLE), (12.0, "reference"), (15.0, "build"), (16.0, "timing"), (20.0, IDLE), (21.0, "reference")]


def test_phases_fill_the_wall_time() -> None:
    seconds = seconds_by_phase(ENTERED, 24.0)
    assert seconds == {IDLE: 3.0, "reference": 6.0, "build": 1.0, "timing": 4.0}
    assert sum(seconds.values()) == 14.0
    assert seconds_by_phase(ENTERED, 20.0)["reference"] == 3.0


def test_samples_count_for_the_phase_that_they_were_taken_in() -> None:
    samples = [(9.0, 77.0), (11.0, 0.0), (17.0, 100.0), (19.0, 50.0), (30.0, 88.0)]
    assert busy_by_phase(ENTERED, samples, 24.0) == {IDLE: 0.0, "timing": 75.0, "": 50.0}


def test_a_sample_that_is_no_number_is_left_out() -> None:
    timeline = Timeline()
    for line in ("12\n", "[N/A]\n", " 100\n"):
        timeline.sample(line)
    assert [value for _, value in timeline.samples] == [12.0, 100.0]


def test_samples_come_while_they_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable}\nimport sys, time\nassert '--id=GPU-1' in sys.argv\n"
        "for _ in range(100000):\n    print(37)\n    time.sleep(0.01)\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    timeline = Timeline()
    with sampled(timeline, "cuda:GPU-1"):
        deadline = time.monotonic() + 30
        while len(timeline.samples) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert {value for _, value in timeline.samples} == {37.0}
    before = list(timeline.samples)
    with sampled(timeline, "cpu"):
        pass
    assert timeline.samples == before


def test_each_share_holds_the_one_before() -> None:
    verdict = make_verdict(seconds={"reference": 5.0, "build": 1.0, "timing": 3.0, "end": 1.0})
    one = Measured("quick", 4, 2, 10.0, [verdict, verdict], ["lost"], {IDLE: 2.0, "timing": 8.0}, {"": 25.0})
    assert one.shares() == pytest.approx((0.2, 0.6, 0.75))
    text = render([one])
    assert "| quick | 4 | 2 of 2 | 10.0 | 720 | 20.0% | **60.0%** | 75.0% | 0 | 0.0 | PASSED 2, fault 1 |" in text
    assert "| quick | 4 | timing | 8.0 | 80.0% |  |" in text
    assert "- fault: lost" in text


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_no_two_submissions_of_a_queue_compile_the_same(device: str) -> None:
    problems = [make_problem(id=f"core/level1/{name}") for name in "abc"]
    jobs = make_jobs(problems, 8, device)
    assert len({source for _, source in jobs}) == 8
    markers = [line for _, source in jobs for line in source.splitlines() if "// core/level1/" in line]
    assert len(set(markers)) == len(markers) == 8  # in the text that is compiled
    for _, source in jobs:
        ast.parse(source)
        assert may_build(source, 1 << 20)
