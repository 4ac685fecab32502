"""Cases of one problem make one verdict: of the one that failed, else of the slowest that is timed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbenv.case import combine, ends, failed_case, seeds_of, split
from kbenv.errors import UsageError
from kbenv.feedback import render_feedback
from kbenv.problems import load_problem
from kbenv.problems.problem import Case, Contract, Problem
from kbenv.prompt import render_prompt
from kbenv.protocol import get_protocol
from kbenv.verdict import Interval, Stage, Status, Verdict
from tests.fakes import SUBMISSION_SOURCE, make_problem, make_verdict
from tests.test_evaluator import make_evaluator, make_result

CASES = (
    Case("big", "perf", {"rows": 256}), Case("odd", "hidden", {"rows": 3}), Case("small", "public", {"rows": 8}),
    Case("wide", "perf", {"rows": 128}),
)  # fmt: skip


def several(*cases: Case) -> Problem:
    return replace(make_problem(), cases=cases or CASES)


def passed(speedup: float, seed: int) -> Verdict:
    verdict = make_verdict(Status.PASSED)
    return verdict.model_copy(
        update={
            "speedup": Interval(value=speedup, low=speedup, high=speedup), "seeds": {"construction": seed},
            "seconds": {"timing": 1.5},
        }
    )  # fmt: skip


def test_what_is_only_checked_is_judged_first_and_hidden_cases_after_those_that_are_shown() -> None:
    judged, left_out = split(several(), "fp32")
    assert [case.name for case, _ in judged] == ["small", "odd", "big", "wide"]
    assert [one.id.split("#")[1] for _, one in judged] == ["small", "odd", "big", "wide"]
    assert left_out == {}


def test_a_shown_case_is_judged_before_hidden_ones_where_none_is_only_checked() -> None:
    cases = (Case("odd", "hidden", {"rows": 3}), Case("one", "hidden", {"rows": 1}), CASES[0], CASES[3])
    assert [case.name for case, _ in split(several(*cases), "fp32")[0]] == ["big", "odd", "one", "wide"]
    other_type = Case("small", "public", {}, "fp16")
    assert [case.name for case, _ in split(several(other_type, *cases), "fp32")[0]] == ["big", "odd", "one", "wide"]
    assert [case.name for case, _ in split(several(*cases[:2]), "fp32")[0]] == ["odd", "one"]


@pytest.mark.parametrize("status", [Status.LOAD_ERROR, Status.WRONG_VALUE])
def test_a_fault_on_every_case_is_told_where_the_others_are_hidden(status: Status) -> None:
    problem = load_problem("core/level4/deviation_norm_any_shape")
    assert {case.role for case in problem.cases} == {"perf", "hidden"}
    evaluator, sandbox = make_evaluator(make_result(status), protocol="verified")
    verdict = evaluator.evaluate(problem, SUBMISSION_SOURCE)
    assert [job.problem.case for job in sandbox.jobs] == ["shown"]
    assert verdict.status is status
    assert render_feedback(verdict).startswith(status.value)


def test_cases_of_another_type_are_left_out_and_said_to_be() -> None:
    problem = several(Case("a", "perf", {}, "fp16"), Case("b", "perf", {}, "fp32"))
    assert problem.own_precision == "fp16"
    judged, left_out = split(problem, "fp32")
    assert [case.name for case, _ in judged] == ["b"]
    assert "defined in fp16" in left_out["a"]
    verdict = combine(problem, [(judged[0][0], passed(2.0, 1))], left_out)
    assert {check.name: check.passed for check in verdict.checks if "case" in check.name} == {
        "case-b": True, "case-a": None,
    }  # fmt: skip
    assert problem.why_unjudged("bf16") == "it is defined in fp16; judge it with --precision fp16"


def test_a_kernel_is_as_fast_as_on_its_worst_timed_case() -> None:
    judged = [(CASES[2], passed(0.5, 1)), (CASES[0], passed(3.0, 2)), (CASES[3], passed(2.0, 3))]
    verdict = combine(several(), judged, {})
    assert verdict.credited
    assert verdict.speedup is not None
    assert verdict.speedup.value == 2.0  # what is only checked does not count
    assert verdict.problem == make_problem().id
    assert failed_case(verdict) == "wide"
    evidence = {check.name: check.evidence.get("speedup") for check in verdict.checks if "case" in check.name}
    assert evidence == {"case-small": 0.5, "case-big": 3.0, "case-wide": 2.0}
    assert verdict.seconds == {"timing": 4.5}


def test_the_seeds_of_every_case_are_kept_and_replayed() -> None:
    verdict = combine(several(), [(CASES[2], passed(0.5, 1)), (CASES[0], passed(3.0, 2))], {})
    assert seeds_of(verdict.seeds, CASES[2]) == {"construction": 1}
    assert seeds_of(verdict.seeds, CASES[0]) == {"construction": 2}
    assert seeds_of(None, CASES[0]) is None
    with pytest.raises(UsageError, match="no seeds of the case 'wide'"):
        seeds_of(verdict.seeds, CASES[3])


def test_of_a_hidden_case_an_agent_learns_only_that_a_hidden_check_failed() -> None:
    for status in (Status.WRONG_VALUE, Status.RUNTIME_ERROR, Status.COMPILE_ERROR):
        verdict = combine(several(), [(CASES[2], passed(1.0, 1)), (CASES[1], make_verdict(status))], {})
        assert verdict.stage is Stage.HIDDEN
        assert render_feedback(verdict) == "WRONG_HIDDEN: a hidden check failed"
        assert failed_case(verdict) == "odd"


def test_of_a_case_that_is_shown_an_agent_learns_which_and_how() -> None:
    verdict = combine(several(), [(CASES[2], make_verdict(Status.WRONG_VALUE))], {})
    text = render_feedback(verdict)
    assert text.startswith("WRONG_VALUE")
    assert "In the case small." in text
    assert "In the case" not in render_feedback(make_verdict(Status.WRONG_VALUE))


def test_whose_kernels_run_counts_only_where_the_time_does() -> None:
    nobody_s = make_verdict(Status.NO_CUSTOM_KERNEL)
    assert not ends(CASES[2], nobody_s)
    assert ends(CASES[0], nobody_s)
    verdict = combine(several(), [(CASES[2], nobody_s), (CASES[0], passed(2.0, 1))], {})
    assert verdict.credited
    assert combine(several(), [(CASES[0], nobody_s)], {}).status is Status.NO_CUSTOM_KERNEL


def test_an_evaluator_judges_every_case_until_one_fails() -> None:
    evaluator, sandbox = make_evaluator(make_result(), make_result(Status.WRONG_VALUE), protocol="verified")
    verdict = evaluator.evaluate(several(), SUBMISSION_SOURCE)
    assert [job.problem.id.split("#")[1] for job in sandbox.jobs] == ["small", "odd"]
    assert verdict.status is Status.WRONG_HIDDEN
    evaluator, sandbox = make_evaluator(make_result(), protocol="verified")
    assert evaluator.evaluate(several(), SUBMISSION_SOURCE).credited
    assert len(sandbox.jobs) == 4
    evaluator, sandbox = make_evaluator(make_result(), protocol="verified")
    assert evaluator.evaluate(several().for_case("big"), SUBMISSION_SOURCE).problem.endswith("#big")
    assert len(sandbox.jobs) == 1


def test_a_prompt_shows_the_cases_and_of_hidden_ones_only_that_there_are_some() -> None:
    text = render_prompt(several(), get_protocol("verified"), "cpu")
    assert "- small: rows = 8\n- big (timed): rows = 256\n- wide (timed): rows = 128\n" in text
    assert "There are further cases, of other sizes" in text
    assert "rows = 3" not in text
    assert "several cases" not in render_prompt(several().for_case("big"), get_protocol("verified"), "cpu")


def test_a_prompt_says_what_forward_writes_into() -> None:
    problem = replace(make_problem(), contract=Contract(in_place=(0,)))
    text = render_prompt(problem, get_protocol("verified"), "cpu")
    assert "writes into its argument number 0" in text
    assert "All other inputs are read-only" in text
