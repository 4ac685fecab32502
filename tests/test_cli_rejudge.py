"""`kbenv rejudge` and `kbenv generate`: the layouts they read, what changes, and going on after an interrupt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli import generate, main, run
from kbenv.cli.agents import OpenedModel
from kbenv.cli.rejudge import CORRECT, NOT_COMPILED, UNKNOWN, WRONG, read_answers
from kbenv.cli.report import read_report
from kbenv.errors import SandboxError
from kbenv.store import read_turns
from kbenv.verdict import Status, Verdict
from tests.fakes import RELU_SOURCE, ScriptedEvaluator, make_verdict
from tests.models import ScriptedModel, make_answer

BySource = dict[str, Verdict | Exception]
Judge = Callable[[BySource], "Judging"]


class Judging(ScriptedEvaluator):
    """Answers by the source."""

    def __init__(self, by_source: BySource) -> None:
        super().__init__()
        self.by_source = by_source

    def evaluate(self, problem: Any, source: str, *, seeds: Any = None) -> Verdict:
        self.sources.append(source)
        outcome = self.by_source[source]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    def install(by_source: BySource) -> Judging:
        evaluator = Judging(by_source)
        monkeypatch.setattr("kbenv.evaluator.Evaluator", lambda **_: evaluator)
        return evaluator

    return install


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A KernelBench checkout with two problems of level 1."""
    for number in (19, 2):
        path = tmp_path / "KernelBench" / "KernelBench" / "level1" / f"{number}_Problem.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RELU_SOURCE)
    return tmp_path / "KernelBench"


def write_kernels(folder: Path, **kernels: str) -> Path:
    """Files such as level_1_problem_19_sample_0_kernel.py, named "p19_s0" here."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in kernels.items():
        problem, sample = (int(part[1:]) for part in name.split("_"))
        (folder / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(source)
    return folder


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    folder = write_kernels(tmp_path / "runs" / "a_model", p19_s0="cheat", p19_s1="good", p2_s0="broken", p2_s1="new")
    results = {
        "19": [
            {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 0.5, "ref_runtime": 2.0},
            {"sample_id": 1, "compiled": True, "correctness": False, "runtime": -1.0},
        ],
        "2": [{"sample_id": 0, "compiled": False, "correctness": False, "runtime": -1.0}],
    }
    (folder / "eval_results.json").write_text(json.dumps(results))
    return folder


VERDICTS: BySource = {
    "cheat": make_verdict(Status.WRONG_HIDDEN),
    "good": make_verdict(speedup=3.0),
    "broken": make_verdict(Status.COMPILE_ERROR),
    "new": make_verdict(speedup=1.5),
}


def command(directory: Path, checkout: Path, *more: str) -> int:
    return main(["rejudge", str(directory), "--problems-dir", str(checkout), *more])


def test_upstreams_layout_is_read_in_natural_order(upstream: Path) -> None:
    answers = read_answers(upstream)
    assert [(a.problem, a.sample, a.source, a.before) for a in answers] == [
        ("kernelbench/level1/2", 0, "broken", NOT_COMPILED),
        ("kernelbench/level1/2", 1, "new", UNKNOWN),
        ("kernelbench/level1/19", 0, "cheat", CORRECT),
        ("kernelbench/level1/19", 1, "good", WRONG),
    ]
    assert [(a.runtime_ms, a.speedup) for a in answers] == [(None, None), (None, None), (0.5, 4.0), (None, None)]


def test_results_by_problem_and_sample_are_read_too(upstream: Path) -> None:
    results = {"19_0": {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 0.25}}
    (upstream / "eval_results.json").write_text(json.dumps(results))
    assert [(a.before, a.runtime_ms) for a in read_answers(upstream)][2] == (CORRECT, 0.25)


@pytest.mark.parametrize("content", ["{", "[1, 2]", '{"nineteen": [{}]}', '{"19": [3]}'])
def test_damaged_results_are_bad_usage(upstream: Path, checkout: Path, content: str, judge: Judge) -> None:
    judge(VERDICTS)
    (upstream / "eval_results.json").write_text(content)
    assert command(upstream, checkout) == 2


def test_what_changed_is_said_and_why(
    upstream: Path, checkout: Path, judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(VERDICTS)
    assert command(upstream, checkout, "--json", str(tmp_path / "out.json")) == 0
    said = capsys.readouterr().out
    assert "kernelbench/level1/19 sample 0: correct -> WRONG_HIDDEN" in said
    assert "kernelbench/level1/19 sample 1: wrong -> PASSED 3x" in said
    assert "correct\tWRONG_HIDDEN\t1" in said
    assert "kernelbench/level1/19 0\tWRONG_HIDDEN\tWRONG_HIDDEN: scripted" in said
    assert "kernelbench/level1/19 1\tPASSED" in said
    assert "kernelbench/level1/2 1\t" not in said  # it was not judged before: nothing changed
    assert "fast_1" in said
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(row["before"]["outcome"], row["verdict"]["status"]) for row in rows][2:] == [
        ("correct", "WRONG_HIDDEN"),
        ("wrong", "PASSED"),
    ]


def test_the_verdicts_are_a_run_beside_the_answers(upstream: Path, checkout: Path, judge: Judge) -> None:
    judge(VERDICTS)
    command(upstream, checkout)
    report = read_report(upstream.with_name("a_model-hardened"))
    assert report.whole is not None
    assert (report.whole.problems, report.whole.samples) == (2, 4)
    assert report.whole.correct.value == 1.0


def test_it_goes_on_where_it_was(upstream: Path, checkout: Path, judge: Judge, tmp_path: Path) -> None:
    judge(VERDICTS | {"good": SandboxError("the machine coughed")})
    assert command(upstream, checkout, "--out", str(tmp_path / "out")) == 3
    again = judge(VERDICTS)
    assert command(upstream, checkout, "--out", str(tmp_path / "out")) == 0
    assert again.sources == ["good"]
    (upstream / "level_1_problem_2_sample_1_kernel.py").write_text("good")
    changed = judge(VERDICTS)
    assert command(upstream, checkout, "--out", str(tmp_path / "out")) == 0
    assert changed.sources == ["good"]


def test_other_rules_in_the_same_place_are_refused(
    upstream: Path, checkout: Path, judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(VERDICTS)
    command(upstream, checkout, "--out", str(tmp_path / "out"))
    judge(VERDICTS).backend = "triton"
    assert command(upstream, checkout, "--out", str(tmp_path / "out")) == 2
    assert "backend was 'auto' and is now 'triton'" in capsys.readouterr().err


def test_a_folder_with_nothing_to_judge_is_bad_usage(
    tmp_path: Path, checkout: Path, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(VERDICTS)
    (tmp_path / "empty").mkdir()
    assert command(tmp_path / "empty", checkout) == 2
    assert "level_L_problem_P_sample_S_kernel.py" in capsys.readouterr().err


def test_an_excluded_problem_is_left_out_and_named(
    tmp_path: Path, checkout: Path, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_kernels(tmp_path / "answers", p19_s0="good", p2_s0="new")
    evaluator = judge(VERDICTS)
    evaluator.protocol = evaluator.protocol.model_copy(update={"excluded": ("kernelbench/level1/2",)})
    assert command(folder, checkout) == 0
    assert evaluator.sources == ["good"]
    assert "leaves out kernelbench/level1/2" in capsys.readouterr().err


# -- generate, then judge ---------------------------------------------------------------------------------------------


def asking(command: str, out: Path, *more: str) -> list[str]:
    return [command, "--model", "some/model", "--problems", "core/level1/relu", "--out", str(out), "-n", "3", *more]


def use_model(monkeypatch: pytest.MonkeyPatch, model: ScriptedModel) -> None:
    def open_model(arguments: Any, name: str, problems: Any, throttle: Any) -> OpenedModel:
        return OpenedModel(name, problems, lambda problem: model)

    for module in (run, generate):
        monkeypatch.setattr(module, "open_model", open_model)


def test_generated_answers_are_judged_by_run_without_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedModel([make_answer(0), make_answer(1), "no code"])
    use_model(monkeypatch, model)
    assert main(asking("generate", tmp_path / "run", "--device", "cpu")) == 0
    assert "core/level1/relu: 3 answers" in capsys.readouterr().out
    assert [turn.judged for turn in read_turns(tmp_path / "run")] == [False] * 3
    evaluator = ScriptedEvaluator([make_verdict(speedup=2.0), make_verdict(Status.WRONG_VALUE)])
    monkeypatch.setattr("kbenv.evaluator.Evaluator", lambda **_: evaluator)
    assert main(asking("run", tmp_path / "run", "--device", "cpu")) == 0
    assert len(model.asked) == 3
    assert len(evaluator.sources) == 2
    statuses = [turn.verdict.status for turn in read_turns(tmp_path / "run") if turn.verdict is not None]
    assert statuses == [Status.PASSED, Status.WRONG_VALUE, Status.FORMAT_ERROR]


def test_generate_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_model(monkeypatch, ScriptedModel([make_answer(0), KeyboardInterrupt()]))
    assert main(asking("generate", tmp_path / "run", "--device", "cuda")) == 130
    model = ScriptedModel([make_answer(1)])
    use_model(monkeypatch, model)
    assert main(asking("generate", tmp_path / "run", "--device", "cuda")) == 0
    assert len(model.asked) == 2
    assert "3 answers (2 new)" in capsys.readouterr().out


def test_generated_answers_can_be_judged_under_any_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: Judge, checkout: Path
) -> None:
    use_model(monkeypatch, ScriptedModel([make_answer(0), "no code", make_answer(2)]))
    main(asking("generate", tmp_path / "run", "--device", "cpu"))
    answers = read_answers(tmp_path / "run")
    assert [(a.before, a.source is None) for a in answers] == [(UNKNOWN, False), (UNKNOWN, True), (UNKNOWN, False)]
    evaluator = judge({a.source: make_verdict() for a in answers if a.source is not None})
    assert command(tmp_path / "run", checkout, "--protocol", "kernelbench") == 0
    assert len(evaluator.sources) == 2
    found = [turn.verdict.status for turn in read_turns(tmp_path / "run-kernelbench") if turn.verdict is not None]
    assert found == [Status.PASSED, Status.FORMAT_ERROR, Status.PASSED]


def test_a_spent_budget_ends_it_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([make_answer(0)])
    use_model(monkeypatch, model)
    assert main(asking("generate", tmp_path / "run", "--device", "cpu", "--max-cost", "0.02")) == 1
    assert len(model.asked) == 2
