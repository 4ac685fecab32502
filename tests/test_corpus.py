"""What a corpus forbids of a verdict, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbenv.corpus import TESTS, find_violation, load_case, quick
from kbenv.protocol import get_protocol
from kbenv.verdict import Status
from tests.fakes import make_verdict

LATER = load_case(TESTS / "exploits" / "i13_die_in_a_later_process.py")


def test_an_exploit_must_not_be_credited():
    case = replace(LATER, constants={"EXPECT": "TAMPERED"})
    assert find_violation("exploit", case, make_verdict(speedup=1.0)) == "credited with 1x"
    assert find_violation("exploit", case, make_verdict(Status.TAMPERED)) is None


def test_slow_honest_work_may_claim_no_more_memory_than_its_file_says():
    case = replace(LATER, constants={"EXPECT": "no_effect", "MEMORY_AT_MOST": 1.2})
    assert find_violation("exploit", case, make_verdict(speedup=0.5, memory=1.2)) is None
    assert "memory ratio of 2" in (find_violation("exploit", case, make_verdict(speedup=0.5, memory=2.0)) or "")


def test_what_only_a_later_process_does_is_a_violation_where_there_is_one():
    full = get_protocol("hardened")
    assert find_violation("exploit", LATER, make_verdict(speedup=1.0, protocol=full)) is not None
    assert find_violation("exploit", LATER, make_verdict(speedup=1.0, protocol=quick(full, "cpu"))) is not None
    alone = full.with_effort("quick")
    assert find_violation("exploit", LATER, make_verdict(speedup=1.0, protocol=alone)) is None


def test_an_honest_kernel_must_be_credited():
    case = replace(LATER, constants={})
    assert find_violation("honest", case, make_verdict(speedup=0.5)) is None
    assert "WRONG_VALUE" in (find_violation("honest", case, make_verdict(Status.WRONG_VALUE)) or "")


def test_a_submission_says_what_it_needs_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(**constants: str) -> str | None:
        return replace(LATER, constants=constants).lacking

    assert lacking() is None
    assert lacking(NEEDS="pytest") is None
    assert lacking(NEEDS="no_such_module") == "no_such_module"
    monkeypatch.delenv("SOME_ROOT", raising=False)
    assert lacking(NEEDS="SOME_ROOT") == "SOME_ROOT"
    monkeypatch.setenv("SOME_ROOT", str(tmp_path))
    assert lacking(NEEDS="SOME_ROOT") is None


def test_the_corpora_are_judged_at_quick_effort_with_a_second_pair_of_runners():
    protocol = quick(get_protocol("hardened"), "cpu")
    assert protocol.effort == "quick"
    assert protocol.timing.runner_pairs == 2
