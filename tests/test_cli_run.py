"""`kbenv run` from its arguments to its exit code, table and files, with a scripted judge."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kbenv.agents import Completion, Trajectory, Turn
from kbenv.agents.model import ContextWindowError
from kbenv.cli import main, run
from kbenv.cli.agents import OpenedModel
from kbenv.cli.summary import Row, print_table
from kbenv.errors import ModelError, SandboxError
from kbenv.problems.problem import Contract
from kbenv.sandbox.docker import DockerSettings
from kbenv.store import Store, StoreError
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import ScriptedModel, make_answer
from tests.test_catalog import own_agent

SCRIPT = '[[rule]]\nwhen = ""\nanswer = ["a.md", "b.md", "c.md"]\n'
FOUR = "core/level1/relu,core/level1/softmax,core/level1/matmul,core/level1/layer_norm"
Start = Callable[..., ScriptedEvaluator]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Puts a scripted evaluator in the place of the real one."""

    def install(*verdicts: Verdict | Exception) -> ScriptedEvaluator:
        evaluator = ScriptedEvaluator(verdicts)
        options: dict[str, Any] = {}

        def make(**given: Any) -> ScriptedEvaluator:
            options.update(given)
            evaluator.on_phase = given.pop("on_phase")
            return evaluator

        evaluator.options = options  # type: ignore[attr-defined]
        monkeypatch.setattr("kbenv.evaluator.Evaluator", make)
        return evaluator

    return install


@pytest.fixture
def replay(tmp_path: Path) -> str:
    for problem in ("core/level1/relu", "core/level1/softmax"):
        folder = tmp_path / "answers" / problem
        folder.mkdir(parents=True)
        (folder / "script.toml").write_text(SCRIPT)
        (folder / "a.md").write_text(make_answer(0))
        (folder / "b.md").write_text(make_answer(1))
        (folder / "c.md").write_text(make_answer(2))
    return f"replay:{tmp_path / 'answers'}"


def arguments(tmp_path: Path, model: str, *more: str, problems: str = "core/level1/relu") -> list[str]:
    return ["run", "--model", model, "--problems", problems, "--out", str(tmp_path / "run"), *more]


def use_model(monkeypatch: pytest.MonkeyPatch, model: ScriptedModel) -> None:
    def open_model(arguments: Any, name: str, problems: Any, throttle: Any) -> OpenedModel:
        return OpenedModel(name, problems, lambda problem: model)

    monkeypatch.setattr(run, "open_model", open_model)


def distinct() -> ScriptedModel:
    """A model whose answers all differ: equal ones may be judged once."""
    numbers = iter(range(1000))
    return ScriptedModel([lambda messages: make_answer(next(numbers))])


def test_a_complete_run_exits_with_zero_whatever_the_verdicts(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0), make_verdict(Status.COMPILE_ERROR))
    assert main(arguments(tmp_path, replay, "-n", "3")) == 0
    out = capsys.readouterr().out
    assert "core/level1/relu sample 0: WRONG_VALUE\n" in out
    assert "core/level1/relu sample 1: PASSED 2x [1.9, 2.1]\n" in out
    assert "credited 1/1 problems; 3 answers; 0 tokens; $0.0000;" in out
    assert f"trajectories in {tmp_path / 'run'}" in out
    assert len(list((tmp_path / "run").rglob("turn-000.json"))) == 3


def test_the_table_shows_the_best_answer(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(speedup=2.0, memory=1.5), make_verdict(speedup=4.0, memory=1.0), make_verdict(Status.TIMEOUT))
    main(arguments(tmp_path, replay, "-n", "3"))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " 2/3 " in line]
    assert line.split() == ["core/level1/relu", "PASSED", "2/3", "4x", "[3.8,", "4.2]", "1.00", "1.00"]


def test_a_second_run_goes_on_from_the_disk(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    main(arguments(tmp_path, replay, "-n", "2"))
    again = start()
    assert main(arguments(tmp_path, replay, "-n", "2")) == 0
    assert again.sources == []
    assert capsys.readouterr().out.count("(from disk)") == 2


def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    use_model(monkeypatch, ScriptedModel([make_answer(), KeyboardInterrupt()]))
    assert main(arguments(tmp_path, "some/model")) == 130
    assert "run the same command again" in capsys.readouterr().err
    rest = ScriptedModel([make_answer()])
    use_model(monkeypatch, rest)
    assert main(arguments(tmp_path, "some/model")) == 0
    assert len(rest.asked) == 4


def test_a_fault_on_one_problem_does_not_stop_the_others(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start(SandboxError("the machine coughed"), make_verdict())
    assert main(arguments(tmp_path, replay, "-n", "1", problems="core/level1/relu,core/level1/softmax")) == 3
    out = capsys.readouterr().out
    lines = [line.split()[:2] for line in out.splitlines()]
    assert ["core/level1/relu", "FAULT"] in lines
    assert ["core/level1/softmax", "PASSED"] in lines
    assert "fault: core/level1/relu: the machine coughed" in out


def test_a_fault_is_judged_again_on_the_next_run(tmp_path: Path, replay: str, start: Start) -> None:
    start(SandboxError("the machine coughed"))
    assert main(arguments(tmp_path, replay, "-n", "1")) == 3
    start(make_verdict())
    assert main(arguments(tmp_path, replay, "-n", "1")) == 0


def test_a_spent_budget_ends_the_run_with_one_and_its_table(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    model = ScriptedModel([make_answer()])
    use_model(monkeypatch, model)
    assert main(arguments(tmp_path, "some/model", "--max-cost", "0.02")) == 1
    said = capsys.readouterr()
    assert "the budget is spent: $0.0200 of $0.0200" in said.err
    assert "2 answers; 30 tokens; $0.0200;" in said.out
    assert len(model.asked) == 2
    # Under a larger budget the same run goes on, and counts what it spent before.
    assert main(arguments(tmp_path, "some/model", "--max-cost", "0.04")) == 1
    assert len(model.asked) == 4


def test_a_fault_in_an_agent_of_ones_own_is_shown_in_full_and_no_answer(
    tmp_path: Path, start: Start, replay: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict())
    agent = tmp_path / "mine.py"
    agent.write_text(f"{own_agent()}\n\nclass Broken(Mine):\n    def run(self, *_):\n        raise KeyError('oops')\n")
    assert main(arguments(tmp_path, replay, "--agent", f"{agent}:Broken")) == 3
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("KeyError: 'oops'\n")


def test_a_model_that_fails_for_good_stops_the_run_with_three(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    use_model(monkeypatch, ScriptedModel([make_answer(), ModelError("some/model: AuthenticationError: no")]))
    assert main(arguments(tmp_path, "some/model")) == 3
    said = capsys.readouterr()
    assert said.err == "kbenv: some/model: AuthenticationError: no\n"
    assert "1 answers" in said.out


def test_a_problem_that_is_too_long_for_the_model_does_not_stop_the_others(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    use_model(monkeypatch, ScriptedModel([ContextWindowError("some/model: too long"), make_answer()]))
    assert main(arguments(tmp_path, "some/model", "-n", "1", problems="core/level1/relu,core/level1/softmax")) == 0
    out = capsys.readouterr().out
    assert "core/level1/relu: some/model: too long\n" in out
    assert "core/level1/softmax sample 0: PASSED" in out


def test_a_full_disk_stops_the_run_with_three_and_asks_nothing_more(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    model = ScriptedModel([make_answer()])
    use_model(monkeypatch, model)

    def fail(store: Any, turn: Any) -> None:
        raise StoreError("cannot write turn-000.json: No space left on device")

    monkeypatch.setattr(Store, "save", fail)
    assert main(arguments(tmp_path, "some/model", problems="core/level1/relu,core/level1/softmax")) == 3
    assert (
        capsys.readouterr().err
        == "kbenv: cannot write turn-000.json: No space left on device; 1 of 2 problems were not reached\n"
    )
    assert len(model.asked) == 1


def test_multi_turn_keeps_each_turn(tmp_path: Path, replay: str, start: Start) -> None:
    evaluator = start(make_verdict(Status.WRONG_VALUE), make_verdict())
    assert main(arguments(tmp_path, replay, "--agent", "multi-turn", "--turns", "2")) == 0
    folder = tmp_path / "run" / "core" / "level1" / "relu" / "sample-0"
    assert sorted(path.name for path in folder.iterdir()) == ["turn-000.json", "turn-001.json"]
    assert len(evaluator.sources) == 1  # both turns have the same code, which is judged once


def test_the_options_reach_the_evaluator_and_the_reward(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator = start(make_verdict(speedup=2.0))
    more = ["--protocol", "kernelbench", "--precision", "bf16", "--device", "cpu", "--sandbox", "process"]
    more += ["--backend", "cpp", "--require-custom-kernel", "--reward", "kevin", "-n", "1", "--effort", "quick"]
    assert main(arguments(tmp_path, replay, *more)) == 0
    assert evaluator.options == {  # type: ignore[attr-defined]
        "protocol": "kernelbench",
        "precision": "bf16",
        "effort": "quick",
        "device": "cpu",
        "sandbox": "process",
        "backend": "cpp",
        "require_custom_kernel": True,
        "compiled_baseline": False,
        "diagnostics": (),
        "allow_same_uid": False,
        "docker": DockerSettings(),
    } | {"on_phase": evaluator.options["on_phase"]}  # type: ignore[attr-defined]
    assert "2.30" in capsys.readouterr().out


def test_a_profile_is_made_of_what_is_looked_at_for_it(tmp_path: Path, replay: str, start: Start) -> None:
    evaluator = start(make_verdict(speedup=2.0))
    assert main(arguments(tmp_path, replay, "-n", "1", "--feedback", "e,p", "--diagnose", "access")) == 0
    assert evaluator.options["diagnostics"] == ("kernels", "code", "access")  # type: ignore[attr-defined]


def test_the_evaluator_is_closed(tmp_path: Path, replay: str, start: Start) -> None:
    evaluator = start()
    main(arguments(tmp_path, replay, "-n", "1"))
    assert evaluator.closed


def test_another_configuration_in_the_same_directory_is_bad_usage(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    main(arguments(tmp_path, replay, "-n", "1"))
    assert main(arguments(tmp_path, replay, "-n", "2")) == 2
    assert "n was 1 and is now 2" in capsys.readouterr().err


def test_problems_without_recorded_answers_are_left_out_and_named(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    assert main(arguments(tmp_path, replay, "-n", "1", problems="core/level1/*,core/level1/relu")) == 0
    left_out = capsys.readouterr().err.partition("left out: ")[2]
    assert {"core/level1/layer_norm", "core/level1/matmul"} <= set(left_out.strip().split(", "))
    assert main(arguments(tmp_path, replay, "-n", "1", problems="core/level2/*")) == 2


def test_replay_alone_means_the_shipped_answers_wherever_it_is_called(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = start()
    monkeypatch.chdir(tmp_path)
    assert main(arguments(tmp_path, "replay:")) == 0
    assert "def forward(self, x):\n        return x\n" in evaluator.sources[0]


def test_an_excluded_problem_is_said_to_be_so_and_not_asked_about(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator = start()
    evaluator.protocol = evaluator.protocol.model_copy(update={"excluded": ("core/level1/relu",)})
    assert main(arguments(tmp_path, replay)) == 0
    assert "EXCLUDED" in capsys.readouterr().out
    assert evaluator.sources == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["-n", "0"], "-n must be at least 1"),
        (["--turns", "3"], "--turns belongs to other agents than single-shot"),
        (["--agent", "multi-turn", "--turns", "0"], "--turns must be at least 1"),
        (["--max-cost", "0"], "--max-cost must be above 0"),
        (["--max-cost", "nan"], "--max-cost must be above 0"),
        (["--max-tokens", "-5"], "--max-tokens must be at least 1"),
        (["--max-calls", "0"], "--max-calls must be at least 1"),
        (["--calls", "0"], "--calls must be at least 1"),
        (["--calls", "2", "-n", "3"], "-n 3 samples need more than --calls 2"),
        (["--agent", "search", "-n", "3"], "-n belongs to other agents than search"),
        (["--patience", "3"], "--patience belongs to other agents than single-shot"),
        (["--agent", "reflect", "--parents", "3"], "--parents belongs to other agents than reflect"),
        (["--agent", "nobody"], "must be one of single-shot, multi-turn"),
        (["--feedback", "x"], "--feedback must be e, p, e,p or none"),
        (["--target-speedup", "0"], "--target-speedup must be above 0"),
        (["--parallel", "0"], "--parallel must be at least 1"),
        (["--temperature", "-1"], "--temperature must be 0 or more"),
        (["--temperature", "nan"], "--temperature must be 0 or more"),
        (["--top-p", "0"], "--top-p must be above 0 and at most 1"),
        (["--top-p", "7"], "--top-p must be above 0 and at most 1"),
    ],
)
def test_bad_numbers_are_one_line_and_exit_code_two(
    tmp_path: Path, replay: str, more: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, replay, *more)) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "problems", "expected"),
    [
        ("replay:/nowhere/at/all", "core/level1/relu", "/nowhere/at/all is none"),
        ("replay:", "no/such/problem", "no problem matches"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_two(
    tmp_path: Path, start: Start, model: str, problems: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    assert main(arguments(tmp_path, model, problems=problems)) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_an_out_that_cannot_be_written_is_bad_usage_before_anything_is_asked(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    model = ScriptedModel([make_answer()])
    use_model(monkeypatch, model)
    (tmp_path / "run").write_text("a file")
    assert main(arguments(tmp_path, "some/model")) == 2
    assert model.asked == []


def test_what_a_run_took_is_that_of_every_call_of_reviews_too(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    use_model(monkeypatch, distinct())
    agents = ["--agent", "reflect", "--agent", "single-shot", "--calls", "3"]
    assert main(arguments(tmp_path, "some/model", *agents)) == 0
    out = capsys.readouterr().out
    # Reflect: an answer, a review of it, another answer. Single-shot: three answers. 15 tokens and a cent each.
    assert "5 answers; 6 calls; 90 tokens; $0.0600;" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("reflect ", "single-shot "))]
    assert [row[-4:] for row in rows if row[1] == "some/model"] == [
        ["2", "3", "45", "$0.0300"], ["3", "3", "45", "$0.0300"]
    ]  # fmt: skip


def test_several_agents_and_models_share_a_budget_and_are_compared(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    use_model(monkeypatch, distinct())
    agents = ["--agent", "multi-turn", "--agent", "search", "--model", "other/model"]
    assert main(arguments(tmp_path, "some/model", *agents, "--calls", "4", "--max-calls", "14")) == 1
    said = capsys.readouterr()
    assert "14 calls of 14" in said.err
    folders = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert folders == [
        "README.md",
        "multi-turn+other_model",
        "multi-turn+some_model",
        "search+other_model",
        "search+some_model",
    ]
    table = [line.split() for line in said.out.splitlines() if line.startswith(("multi-turn ", "search "))]
    assert [row[:2] + row[-3:-2] for row in table if len(row) > 3] == [
        ["multi-turn", "some/model", "4"],
        ["search", "some/model", "4"],
        ["multi-turn", "other/model", "4"],
        ["search", "other/model", "2"],
    ]
    # With a larger budget the same command goes on, and asks nothing twice.
    assert main(arguments(tmp_path, "some/model", *agents, "--calls", "4", "--max-calls", "16")) == 0
    assert len(list((tmp_path / "run").rglob("turn-*.json"))) == 16


@pytest.mark.parametrize("agent", ["single-shot", "multi-turn", "search", "reflect", "skills"])
def test_every_agent_runs_from_the_command_line_and_goes_on_from_the_disk(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], agent: str
) -> None:
    verdicts = [make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0), make_verdict(speedup=3.0)]
    start(*verdicts)
    model = distinct()
    use_model(monkeypatch, model)
    more = ["--agent", agent, "--calls", "6"]
    more += [] if agent in ("single-shot", "skills") else ["--context", "summary", "--context-answers", "1"]
    assert main(arguments(tmp_path, "some/model", *more)) == 0
    assert len(model.asked) == 6
    first = capsys.readouterr().out
    again = start(make_verdict())
    assert main(arguments(tmp_path, "some/model", *more)) == 0
    assert (len(model.asked), again.sources) == (6, [])
    assert capsys.readouterr().out.count("(from disk)") == first.count(": PASSED ") + first.count(": WRONG_VALUE")


def test_a_run_leaves_its_trajectories_and_its_ledger(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    use_model(monkeypatch, distinct())
    assert main(arguments(tmp_path, "some/model", "--agent", "reflect", "--calls", "3")) == 0
    turns = [json.loads(line) for line in (tmp_path / "run" / "trajectories.jsonl").read_text().splitlines()]
    calls = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [(turn["agent"], turn["status"], turn["speedup"]) for turn in turns] == [
        ("reflect", "WRONG_VALUE", None),
        ("reflect", "PASSED", 2.0),
    ]
    assert sorted(call["purpose"] for call in calls) == ["answer", "answer", "reflection"]
    assert sum(call["cost_usd"] for call in calls) == pytest.approx(0.03)


def test_a_run_is_exported_as_turns_pairs_conversations_and_ledger(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0), make_verdict(speedup=1.0))
    use_model(monkeypatch, distinct())
    assert main(arguments(tmp_path, "some/model", "-n", "3", "--at-once", "1")) == 0
    capsys.readouterr()
    counts = {}
    for format in ("turns", "sft", "preferences", "ledger"):
        assert main(["export", str(tmp_path / "run"), "--format", format]) == 0
        counts[format] = len([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert counts == {"turns": 3, "sft": 2, "preferences": 2, "ledger": 3}
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "all.jsonl")]) == 0
    assert (tmp_path / "all.jsonl").read_text() == (tmp_path / "run" / "trajectories.jsonl").read_text()
    assert main(["export", str(tmp_path / "run" / "core")]) == 2


def test_a_dry_run_asks_nothing_and_says_what_it_would_take(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator = start()
    model = ScriptedModel([make_answer()])
    use_model(monkeypatch, model)
    agents = ["--agent", "single-shot", "--agent", "multi-turn", "--calls", "10", "--dry-run"]
    assert main(arguments(tmp_path, "some/model", *agents, problems=FOUR)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    single, multi = rows[1], rows[2]
    assert single[:4] == ["single-shot", "some/model", "4", "40"]
    assert multi[:4] == ["multi-turn", "some/model", "4", "40"]
    prompts = [int(row[4].replace(",", "")) for row in (single, multi)]
    again = 4 * 45 * (4000 + 2857)  # 0 + 1 + ... + 9 answers with their feedback are sent again
    assert 0 < prompts[1] - prompts[0] - again < 40 * 100  # a conversation's system message is longer
    assert single[5] == "160,000"
    assert "feedback of 2,857 tokens, the most that is shown" in " ".join(word for row in rows for word in row)
    assert (model.asked, evaluator.sources) == ([], [])
    assert not (tmp_path / "run").exists()


def test_answers_that_were_none_are_named(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    answers = [
        Completion("", finish_reason="content_filter", cost_usd=0.0),
        Completion("I'm sorry, I can't help.", cost_usd=0.0),
        Completion("", cost_usd=0.0),
        Completion(make_answer(), finish_reason="length", cost_usd=0.0),
        Completion(make_answer(1), cost_usd=0.0),
    ]
    use_model(monkeypatch, ScriptedModel(answers))
    assert main(arguments(tmp_path, "some/model", "--at-once", "1")) == 0
    out = capsys.readouterr().out
    assert "sample 0: FORMAT_ERROR (filtered)" in out
    assert "sample 3: PASSED (cut-off) 2x" in out
    assert "5 answers (1 cut off at the token limit: see --max-tokens; 1 empty; 1 refused; 1 stopped by" in " ".join(
        out.split()
    )


@pytest.mark.parametrize(("feedback", "told"), [("e", True), ("none", False)])
def test_execution_feedback_is_a_switch(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, feedback: str, told: bool
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    model = distinct()
    use_model(monkeypatch, model)
    more = ["--agent", "multi-turn", "--turns", "3", "--feedback", feedback]
    assert main(arguments(tmp_path, "some/model", *more)) == 0
    said = model.asked[2][-1].content
    assert ("PASSED" in said) is ("Best so far" in said) is ("WRONG_VALUE" in model.asked[1][-1].content) is told
    assert "This was turn 2 of 3." in said


def test_an_agent_of_ones_own_runs_from_the_command_line(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    use_model(monkeypatch, distinct())
    (tmp_path / "mine.py").write_text(own_agent())
    more = ["--agent", f"{tmp_path / 'mine.py'}:Mine", "--calls", "4"]
    assert main(arguments(tmp_path, "some/model", *more)) == 0
    assert len(list((tmp_path / "run").rglob("turn-*.json"))) == 4
    assert "1/1 problems" in capsys.readouterr().out


def test_the_prompts_options_reach_the_prompt_and_belong_to_the_configuration(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    model = ScriptedModel([make_answer()])
    use_model(monkeypatch, model)
    more = ["-n", "1", "--shots", "one", "--hardware", "H100", "--concepts", "--view", "blind"]
    assert main(arguments(tmp_path, "some/model", *more)) == 0
    said = model.asked[0][1].content
    for part in ("## An example", "H100 (compute capability 9.0)", "## What decides the speed", "is not shown"):
        assert part in said
    assert main(arguments(tmp_path, "some/model", "-n", "1", "--shots", "few")) == 2
    assert "shots was 'one' and is now 'few'" in capsys.readouterr().err


def test_kbenv_prompt_shows_what_a_model_would_read(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start()
    assert main(["prompt", "core/level1/relu", "--system", "--turns", "3", "--shots", "one"]) == 0
    out = capsys.readouterr().out
    assert "You have at most 3 answers" in out
    assert "# Task" in out
    assert "## An example" in out
    assert main(["prompt", "core/level1/relu", "--hardware", "Voodoo 2"]) == 2
    assert main(["prompt", "core/level1/relu", "--turns", "0"]) == 2


def test_problems_in_progress_at_once_end_like_one_after_the_other(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start(make_verdict(speedup=2.0))
    more = ["-n", "2", "--parallel", "2"]
    assert main(arguments(tmp_path, replay, *more, problems="core/level1/relu,core/level1/softmax")) == 0
    table = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " PASSED 2/2 " in line]
    assert table == ["core/level1/relu", "core/level1/softmax"]


@pytest.mark.parametrize("value", ["0", "x", "openai=0", "=3", "openai=x"])
def test_malformed_limits_of_requests_are_bad_usage(
    tmp_path: Path, replay: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, replay, f"--at-once={value}")) == 2
    assert "--at-once must be" in capsys.readouterr().err


def make_rows() -> list[Row]:
    def turn(verdict: Verdict, reward: float) -> Turn:
        return Turn(0, 0, "", "", "", verdict, reward)

    def row(problem: str, *turns: Turn, **more: Any) -> Row:
        return Row(Trajectory(problem, "single-shot", "m", turns), **more)

    return [
        row("core/level2/matmul_bias_swish_row_max", turn(make_verdict(speedup=12.345, memory=1.5), 1.43)),
        row("core/level3/conv_residual_block", turn(make_verdict(Status.NO_CUSTOM_KERNEL), 0.0)),
        row("kernelbench/level1/100", turn(make_verdict(Status.ILLEGAL_ACCESS), 0.0)),
        row("core/level1/relu", fault="the machine coughed"),
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_is_readable_at_any_width(width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    print_table(console, make_rows())
    text = console.export_text()
    assert all(len(line) <= width for line in text.splitlines())
    for whole in ("NO_CUSTOM_KERNEL", "ILLEGAL_ACCESS", "12.3x", "[11.7, 13]", "1.50", "1.43", "FAULT"):
        assert whole in text, text
    assert "…" not in text


def test_the_folder_of_several_runs_is_a_dataset_too(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    start(make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0))
    agents = ["--agent", "single-shot", "--agent", "multi-turn", "--calls", "2"]
    assert main(arguments(tmp_path, replay, *agents)) == 0
    found = datasets.load_dataset(str(tmp_path / "run"), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(found["agent"]) == ["multi-turn", "multi-turn", "single-shot", "single-shot"]
    assert main(["report", str(tmp_path / "run")]) == 0


def test_what_differs_of_a_run_is_named_to_the_part(
    tmp_path: Path, replay: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    assert main(arguments(tmp_path, replay, "-n", "1")) == 0
    path = tmp_path / "run" / "run.json"
    stored = json.loads(path.read_text())
    stored["config"]["rules"]["limits"]["call_s"] = 1.5
    path.write_text(json.dumps(stored))
    assert main(arguments(tmp_path, replay, "-n", "1")) == 2
    assert "(rules.limits.call_s was 1.5 and is now 30.0)" in capsys.readouterr().err


def test_a_prompt_for_a_gpu_needs_none(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = start()
    assert main(["prompt", "core/level1/softmax", "--device", "cuda", "--backend", "triton", "--hardware", "H200"]) == 0
    out = capsys.readouterr().out
    assert "Device: CUDA GPU" in out
    assert "ROWS = 5242880" in out
    assert evaluator.options["device"] == "cpu"  # type: ignore[attr-defined]
    assert main(["prompt", "core/level1/softmax", "--device", "gpu"]) == 2


def test_a_budget_that_ends_a_run_says_how_much_of_it_is_left(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    use_model(monkeypatch, distinct())
    assert main(arguments(tmp_path, "some/model", "-n", "1", "--max-calls", "2", problems=FOUR)) == 1
    assert "to go on; 1 of 4 problems were not reached" in capsys.readouterr().err


FIXED = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n\n"
FIXED += "def get_inputs():\n    return [torch.rand(4)]\n\n\ndef get_init_inputs():\n    return []\n"


def test_what_the_rules_do_not_judge_is_left_out_before_anything_is_asked(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = make_problem(id="a/one", source=FIXED)
    other = make_problem(id="a/two", source=FIXED, contract=Contract(dtype="bf16"))
    repeats = make_problem(id="a/three", source=FIXED, same_as="kernelbench/level2/23")
    monkeypatch.setattr("kbenv.problems.list_problems", lambda *_, **__: [other, repeats, judged])
    evaluator = start(make_verdict(speedup=2.0))
    model = distinct()
    use_model(monkeypatch, model)
    assert main(arguments(tmp_path, "some/model", "-n", "1", problems="a/*")) == 0
    said = capsys.readouterr()
    assert "left out: a/two is not judged: it is defined in bf16; judge it with --precision bf16" in said.err
    assert "a/three EXCLUDED" in " ".join(said.out.split())
    assert (len(model.asked), len(evaluator.sources)) == (1, 1)
    monkeypatch.setattr("kbenv.problems.list_problems", lambda *_, **__: [other])
    assert main(arguments(tmp_path / "none", "some/model", "-n", "1", problems="a/*")) == 2
    assert len(model.asked) == 1
