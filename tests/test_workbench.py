"""The tools for coding agents: each tells its part, budgets hold, and hidden checks stay hidden."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kbenv.case import combine, split
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.problems import load_problem
from kbenv.problems.problem import Case, Problem
from kbenv.prompts import render
from kbenv.protocol import get_protocol
from kbenv.verdict import HIDDEN_STAGES, Stage, Status, Verdict
from kbenv.workbench import TOOLS, Budget, BudgetSpentError, Workbench, describe_tool, trial_protocol, unfenced
from tests.fakes import ScriptedEvaluator, make_plausibility, make_problem, make_verdict
from tests.test_prompts import golden

SOURCE = "class ModelNew: pass\n"
Outcome = Verdict | Exception


def bench(
    trials: list[Outcome] | None = None, verdicts: list[Outcome] | None = None, problem: Problem | None = None,
    **options: Any,
) -> tuple[Workbench, ScriptedEvaluator, ScriptedEvaluator]:  # fmt: skip
    judge = ScriptedEvaluator(verdicts or [make_verdict()])
    trial = ScriptedEvaluator(trials or [make_verdict()], protocol=trial_protocol(judge.protocol))
    made = Workbench(problem or make_problem(), cast(Evaluator, judge), cast(Evaluator, trial), **options)
    return made, judge, trial


@pytest.mark.parametrize("name", ["verified", "hardened", "kernelbench"])
def test_a_trial_has_the_rules_without_the_hidden_inputs(name: str) -> None:
    protocol = get_protocol(name)
    trial = trial_protocol(protocol)
    assert (trial.hidden_inputs, trial.probes, trial.perturb_timed) == ((), (), False)
    assert trial.diagnostics == ("kernels", "code")
    same = {"effort", "timing", "hidden_inputs", "probes", "perturb_timed", "memory", "diagnostics"}
    assert trial.model_dump(exclude=same) == protocol.model_dump(exclude=same)


def test_the_problem_is_read_for_nothing() -> None:
    made, judge, trial = bench()
    text = made.read_problem()
    assert "class Model(" in text
    assert "you have 10 submissions" in text
    assert "Left: 10 submissions, 100 judged calls, 3600 s of judging." in text
    assert judge.sources == trial.sources == []


def test_compiling_checking_and_profiling_one_source_cost_one_job() -> None:
    made, judge, trial = bench([make_verdict(speedup=1.5, plausibility=make_plausibility(None))])
    assert made.compile(SOURCE).startswith("It compiles and loads.\n\nLeft: 10 submissions, 99 judged calls")
    assert made.check(SOURCE).startswith("The 5 standard trials are right. Hidden inputs were not tested")
    text = made.profile(SOURCE)
    assert "1.5x" in text
    assert "Profile of one call" in text
    assert len(trial.sources) == 1
    assert judge.sources == []
    made.check(SOURCE + "# other\n")
    assert len(trial.sources) == 2


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.LOAD_ERROR])
def test_compiler_errors_are_told(status: Status) -> None:
    made, _, _ = bench([make_verdict(status)])
    assert made.compile(SOURCE).startswith(f"{status.value}: ")
    assert made.check(SOURCE).startswith(f"{status.value}: ")


def test_a_wrong_trial_compiles_and_is_told_where_it_is_wrong() -> None:
    made, _, _ = bench([make_verdict(Status.WRONG_VALUE)])
    assert made.compile(SOURCE).startswith("It compiles")
    assert "31 of 8192" in made.check(SOURCE)
    assert made.profile(SOURCE).startswith("WRONG_VALUE: ")


def test_only_a_submission_is_judged_by_the_protocol_and_the_fastest_one_is_kept() -> None:
    verdicts: list[Outcome] = [make_verdict(speedup=1.5), make_verdict(Status.WRONG_HIDDEN), make_verdict(speedup=1.2)]
    made, judge, trial = bench(verdicts=verdicts)
    assert "1.5x" in made.submit(SOURCE)
    assert made.submit(SOURCE).startswith("WRONG_HIDDEN: a hidden check failed\n")
    text = made.submit(SOURCE)
    assert "Left: 7 submissions, 97 judged calls" in text
    assert "Best submission so far: 1.5x." in text
    assert made.best is verdicts[0]
    assert (len(judge.sources), trial.sources) == (3, [])


@pytest.mark.parametrize("stage", sorted(HIDDEN_STAGES))
@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.WRONG_HIDDEN, Status.TIMEOUT, Status.ILLEGAL_ACCESS])
def test_every_hidden_failure_of_a_submission_reads_the_same(status: Status, stage: Stage) -> None:
    made, _, _ = bench(verdicts=[make_verdict(status, stage=stage, message="SECRET", detail="SECRET", output="SECRET")])
    assert made.submit(SOURCE).split("\n\n")[0] == "WRONG_HIDDEN: a hidden check failed"


def test_budgets_end_what_they_are_for() -> None:
    made, _, _ = bench(budget=Budget(calls=3, submissions=1))
    made.submit(SOURCE)
    with pytest.raises(BudgetSpentError, match="all 1 submissions"):
        made.submit(SOURCE)
    made.check("a")
    made.check("b")
    with pytest.raises(BudgetSpentError, match="all 3 judged calls"):
        made.check("c")
    assert "0 judged calls" in made.check("a")  # known already


def test_seconds_of_judging_are_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    from kbenv import workbench

    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr(workbench.time, "monotonic", lambda: next(clock))
    made, _, _ = bench(budget=Budget(seconds=10))
    assert "3 s of judging" in made.check("a")
    assert "0 s of judging" in made.check("b")
    with pytest.raises(BudgetSpentError, match="10 seconds"):
        made.check("c")


def test_a_fault_of_the_machine_costs_no_call_and_may_be_tried_again() -> None:
    made, _, _ = bench([SandboxError("no GPU"), make_verdict()])
    with pytest.raises(SandboxError):
        made.check(SOURCE)
    assert "99 judged calls" in made.check(SOURCE)


def test_every_verdict_is_reported() -> None:
    seen: list[tuple[str, str, Status]] = []
    made, _, _ = bench(on_verdict=lambda tool, source, verdict: seen.append((tool, source, verdict.status)))
    made.check(SOURCE)
    made.profile(SOURCE)
    made.submit(SOURCE)
    assert seen == [("check", SOURCE, Status.PASSED), ("submit", SOURCE, Status.PASSED)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *[(f"workbench-{tool}", {"part": "tool", "tool": tool}) for tool in TOOLS],
        ("workbench-task", {"part": "task", "task": "# Task", "budget": Budget()}),
        ("workbench-compiled", {"part": "compiled"}),
        ("workbench-checked", {"part": "checked", "trials": 5, "late": False, "cases": 0, "case": None}),
        ("workbench-cases", {"part": "checked", "trials": 5, "late": False, "cases": 2, "case": None}),
        ("workbench-late", {"part": "checked", "trials": 5, "late": True, "cases": 0, "case": None}),
        ("workbench-late-case", {"part": "checked", "trials": 5, "late": True, "cases": 2, "case": "small"}),
        ("workbench-left", {"part": "left", "left": Budget(9, 1, 3.5), "best": make_verdict(speedup=1.5)}),
        ("workbench-none", {"part": "left", "left": Budget(1, 0, 0.0), "best": None}),
    ],
)
def test_its_texts_are_the_golden_ones(name: str, values: dict[str, Any]) -> None:
    golden(f"{name}.md", render("workbench.j2", **values))


def test_every_tool_has_its_description() -> None:
    texts = [describe_tool(tool) for tool in TOOLS]
    assert len(set(texts)) == len(TOOLS)
    assert all("ModelNew" in text for text in texts[1:])


def test_a_source_in_a_markdown_fence_is_the_source() -> None:
    made, judge, trial = bench([make_verdict(speedup=1.5, plausibility=make_plausibility(None))])
    fenced = f"```python\n{SOURCE}```\n"
    for tool in (made.compile, made.check, made.profile):
        tool(fenced)
    made.check(SOURCE)
    made.submit(fenced)
    assert trial.sources == judge.sources == [SOURCE]
    assert unfenced("```\nno code") == "```\nno code"  # judged, and refused, as it stands


SHOWN = (Case("big", "perf", {"rows": 256}), Case("small", "public", {"rows": 8}))
HIDDEN = Case("odd", "hidden", {"rows": 3})


def trial_of(problem: Problem, *verdicts: Verdict) -> Verdict:
    """What the evaluator makes of the first cases of what a trial judges."""
    judged, left_out = split(problem.without_hidden_cases(), "fp32")
    return combine(problem, [(case, verdict) for (case, _), verdict in zip(judged, verdicts, strict=False)], left_out)


def test_a_trial_judges_the_cases_that_are_shown_and_a_submission_all() -> None:
    problem = make_problem(cases=(*SHOWN, HIDDEN))
    made, judge, trial = bench([trial_of(problem, make_verdict(), make_verdict())], problem=problem)
    assert made.check(SOURCE).startswith(
        "The 5 standard trials of every case that is shown are right. Hidden inputs were not tested"
    )
    made.submit(SOURCE)
    (tried,), (judged,) = trial.problems, judge.problems
    assert isinstance(tried, Problem)
    assert tried.cases == SHOWN
    assert judged is problem


def test_a_trial_of_a_problem_with_one_case_that_is_shown_judges_that() -> None:
    problem = make_problem(cases=(HIDDEN, SHOWN[0]))
    made, _, trial = bench(problem=problem)
    made.check(SOURCE)
    (tried,) = trial.problems
    assert isinstance(tried, Problem)
    assert (tried.case, tried.source_for("cpu")) == ("big", problem.for_case("big").source_for("cpu"))


def test_a_problem_of_hidden_cases_alone_has_no_trial() -> None:
    with pytest.raises(UsageError, match="all of its 1 cases are hidden"):
        bench(problem=make_problem(cases=(HIDDEN,)))


@pytest.mark.parametrize("status", [Status.LOAD_ERROR, Status.COMPILE_ERROR])
def test_what_cannot_be_loaded_is_told_so_whatever_cases_are_hidden(status: Status) -> None:
    problem = make_problem(cases=(HIDDEN, *SHOWN))
    made, _, _ = bench([trial_of(problem, make_verdict(status))], problem=problem)
    for tool in (made.compile, made.check, made.profile):
        text = tool(SOURCE)
        assert text.startswith(f"{status.value}: ")
        assert "In the case small." in text


def test_a_later_call_of_a_shown_case_is_told_as_that() -> None:
    problem = make_problem(cases=(HIDDEN, *SHOWN))
    late = make_verdict(Status.WRONG_VALUE, stage=Stage.TIMING)
    made, _, _ = bench([trial_of(problem, late)], problem=problem)
    assert made.compile(SOURCE).startswith("It compiles and loads.")
    for tool in (made.check, made.profile):
        text = tool(SOURCE)
        assert text.startswith("The 5 standard trials of the case small are right. A later call of it was not")
        assert "hidden check failed" not in text


@pytest.mark.slow
def test_a_source_that_cannot_be_constructed_is_told_by_a_real_trial() -> None:
    source = "class ModelNew:\n    def __init__(self, columns):\n        raise ValueError('no')\n"
    judge = get_protocol("verified")
    with Evaluator(protocol=trial_protocol(judge), device="cpu", sandbox="process") as trial:
        made = Workbench(load_problem("core/level4/deviation_norm_any_shape"), trial, trial)
        for tool in (made.compile, made.check, made.profile):
            assert tool(source).startswith("LOAD_ERROR: ")
