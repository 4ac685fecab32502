"""Calls in a row that took less than as many launches are judged by calls alone."""

from __future__ import annotations

import os
import re

import pytest

from kbenv import get_protocol, load_problem
from kbenv.corpus import TESTS
from kbenv.sandbox.job import Job as Spec
from kbenv.sandbox.judge import timing
from kbenv.sandbox.judge.job import Job
from kbenv.sandbox.judge.place import UIDS, Place
from kbenv.sandbox.judge.setting import Setting
from kbenv.sandbox.zygote import Zygote

FLAG = "calls in a row took less than as many launches: single calls count"


@pytest.mark.parametrize("launch_ms", [timing._LAUNCH_MS, 1e6])
def test_what_no_launches_leave_time_for_is_no_latency(tmp_path, monkeypatch, launch_ms):
    tmp_path.chmod(0o711)
    problem = load_problem(str(TESTS / "exploits/problems/tiny_relu.py"))
    protocol = get_protocol("hardened", require_custom_kernel=False).with_effort("quick")
    spec = Spec(problem, re.sub(r"\bModel\b", "ModelNew", problem.source_for("cpu")), protocol, "cpu", 1).to_message()
    uids = range(61300, 61300 + UIDS) if os.geteuid() == 0 else None
    monkeypatch.setattr(timing, "_LAUNCH_MS", launch_ms)
    with Zygote.start(str(tmp_path), contained=False) as zygote:
        result = Job(spec, Place(zygote, Setting.of(spec), uids), lambda _: None).run()
    timed, impossible = result["timing"], launch_ms > 1
    measured = timed["measurement"]
    assert measured["calls_per_turn"] > 1
    assert any(flag.endswith(FLAG) for flag in result["flags"]) is impossible
    if impossible:
        alone = [measured[f"{arm}_single_call_ms"] for arm in ("reference", "submission")]
        assert timed["latency_ms"] == alone[1] < 1000
        assert timed["speedup"]["value"] == pytest.approx(alone[0] / alone[1])
