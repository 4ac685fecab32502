"""What a corpus forbids of a verdict, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbenv.corpus import TESTS, find_violation, load_case, quick, try_exploit, try_honest
from kbenv.errors import ReferenceFaultError
from kbenv.protocol import get_protocol
from kbenv.sandbox.judge.presence import UNSEEN
from kbenv.verdict import Status, Verdict
from tests.fakes import make_verdict

LATER = load_case(TESTS / "exploits" / "i13_die_in_a_later_process.py")


def in_order(*verdicts: Verdict | Exception) -> Callable[[], Verdict]:
    left = list(verdicts)

    def evaluate() -> Verdict:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return evaluate


def test_an_exploit_is_judged_as_often_as_its_file_says_and_the_worst_run_counts():
    case = replace(LATER, constants={"EXPECT": ["RUNTIME_ERROR"], "RUNS": 2})
    raises, wrong, right = make_verdict(Status.RUNTIME_ERROR), make_verdict(Status.WRONG_VALUE), make_verdict()
    assert try_exploit(case, in_order(raises, raises)).word == "ok"
    assert try_exploit(case, in_order(raises, right)).word == "VIOLATION"
    assert try_exploit(case, in_order(wrong, raises)).word == "other"
    assert not try_exploit(case, in_order(wrong, raises)).held


def test_a_number_that_is_too_high_for_slow_honest_work_is_taken_again_and_nothing_else_is():
    case = replace(LATER, constants={"EXPECT": "no_effect", "MEMORY_AT_MOST": 1.2, "NEVER_SHOWN": "Speedup"})
    told = make_verdict(Status.RUNTIME_ERROR, detail="Speedup")
    quiet = replace(case, constants={"EXPECT": "no_effect", "MEMORY_AT_MOST": 1.2})
    fast, slow = make_verdict(speedup=0.9), make_verdict(speedup=0.5)
    assert [len(try_exploit(quiet, in_order(*verdicts)).verdicts) for verdicts in ([slow], [fast, slow])] == [1, 2]
    assert try_exploit(quiet, in_order(fast, fast, fast)).word == "VIOLATION"
    assert try_exploit(quiet, in_order(make_verdict(speedup=0.5, memory=2.0))).word == "VIOLATION"
    assert try_exploit(case, in_order(told)).word == "VIOLATION"


def test_beside_named_statuses_no_effect_stands_for_no_other_refusal():
    wrong = make_verdict(Status.WRONG_VALUE)
    for expect, word in (("no_effect", "ok"), (["no_effect", "WRONG_HIDDEN"], "other")):
        assert try_exploit(replace(LATER, constants={"EXPECT": expect}), in_order(wrong)).word == word


def test_what_an_agent_may_not_read_is_a_violation_whatever_the_status():
    wrong = make_verdict(Status.RUNTIME_ERROR, detail="ValueError: credited")
    for constants in ({"NEVER_SHOWN": "credited"}, {"FEEDBACK": "WRONG_HIDDEN: a hidden check failed"}):
        case = replace(LATER, constants={"EXPECT": ["RUNTIME_ERROR"], **constants})
        assert "feedback" in (find_violation("exploit", case, wrong) or "")
    quoted = replace(LATER, constants={"EXPECT": ["RUNTIME_ERROR"], "ONLY_QUOTED": "ValueError"})
    assert find_violation("exploit", quoted, wrong) is None
    said = replace(LATER, constants={"EXPECT": ["RUNTIME_ERROR"], "ONLY_QUOTED": "RUNTIME_ERROR"})
    assert "as its own" in (find_violation("exploit", said, wrong) or "")


def test_credit_is_noted_where_the_file_says_that_it_may_be():
    for constants in ({"BEST_EFFORT": "nobody sees it"}, {"STOPPED_BY": "hardened"}):
        case = replace(LATER, constants={"EXPECT": ["WRONG_VALUE"], **constants})
        outcome = try_exploit(case, in_order(make_verdict(speedup=1.0, protocol=get_protocol("verified"))))
        assert (outcome.word, outcome.held) == ("noted", True)
    hardened = make_verdict(speedup=1.0, protocol=get_protocol("hardened"))
    assert try_exploit(case, in_order(hardened)).word == "VIOLATION"


def test_a_problem_that_is_refused_is_so_for_the_reason_that_it_has():
    case = replace(LATER, constants={"EXPECT": "UNJUDGED"})
    assert try_exploit(case, in_order(ReferenceFaultError("the same whatever goes in"))).held
    with pytest.raises(ReferenceFaultError):
        try_exploit(case, in_order(ReferenceFaultError("it raised")))
    assert not try_exploit(case, in_order(make_verdict(Status.WRONG_VALUE))).held


def test_an_honest_kernel_shows_the_speed_that_its_file_claims_in_one_of_three():
    case = replace(LATER, constants={"SPEEDUP_AT_LEAST": 5})
    slow, quick_one = make_verdict(speedup=2.0), make_verdict(speedup=6.0)
    assert len(try_honest(case, in_order(slow, quick_one)).verdicts) == 2
    assert not try_honest(case, in_order(slow, slow, slow)).held
    assert try_honest(case, in_order(make_verdict(Status.WRONG_VALUE))).word == "VIOLATION"
    assert len(try_honest(case, in_order(*[quick_one] * 4), repeats=4).verdicts) == 4


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


def test_what_only_a_look_at_memory_shows_is_a_violation_where_the_judge_had_one():
    case = replace(LATER, constants={"EXPECT": "TAMPERED", "NEEDS_SIGHT": True})
    assert try_exploit(case, in_order(make_verdict(speedup=1.0))).word == "VIOLATION"
    assert try_exploit(case, in_order(make_verdict(speedup=1.0, flags=(UNSEEN,)))).word == "noted"


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


def test_where_a_clock_cannot_tell_the_work_a_file_says_what_may_be_claimed() -> None:
    equal = make_verdict(speedup=1.0)
    plain = replace(LATER, constants={"EXPECT": "no_effect"})
    tiny = replace(plain, constants={"EXPECT": "no_effect", "SPEEDUP_AT_MOST": 1.1})
    assert find_violation("exploit", plain, equal) == "credited with 1x, more than its honest work is worth"
    assert find_violation("exploit", tiny, equal) is None
    quick_one = make_verdict(speedup=1.2)
    assert find_violation("exploit", tiny, quick_one) is not None
