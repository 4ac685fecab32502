"""What is on disk, and that a run goes on from any point at which it may have been interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kbenv.agents import Trajectory
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.recording import RecordedEvaluator, RecordedModel
from kbenv.agents.single_shot import SingleShot
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.store import Store, StoredTurn, StoreError
from kbenv.verdict import Status
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import ScriptedModel, make_answer

PROBLEM = "core/level1/relu"
CONFIG: dict[str, Any] = {"agent": "single-shot", "n": 3}


def make_turn(**overrides: Any) -> StoredTurn:
    fields: dict[str, Any] = {
        "problem": PROBLEM, "sample": 0, "index": 0, "model": "scripted", "observation": "o", "answer": "a",
        "prompt_tokens": 1, "completion_tokens": 2, "cost_usd": 0.5, "finish_reason": "stop",
    }  # fmt: skip
    return StoredTurn(**(fields | overrides))


def play(directory: Path, model: ScriptedModel, evaluator: ScriptedEvaluator, agent: str) -> Trajectory:
    """One problem of a run, as `kbenv run` plays it."""
    recorded = RecordedModel(model, Store(directory, CONFIG), PROBLEM)
    judge = cast(Evaluator, RecordedEvaluator(cast(Evaluator, evaluator), recorded))
    if agent == "single-shot":
        return SingleShot(recorded, n=3).run(SingleTurnEnv(make_problem(), evaluator=judge), PROBLEM, recorded.finish)
    env = MultiTurnEnv(make_problem(), max_turns=3, evaluator=judge)
    return MultiTurn(recorded, turns=3).run(env, PROBLEM, recorded.finish)


def files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def test_a_turn_is_stored_where_the_module_says_and_comes_back_equal(tmp_path: Path) -> None:
    store = Store(tmp_path / "run", CONFIG)
    turn = make_turn(sample=2, index=11, judged=True, reward=0.75, verdict=make_verdict(), code="x\n")
    store.save(turn)
    assert (tmp_path / "run" / PROBLEM / "sample-2" / "turn-011.json").is_file()
    assert store.load(PROBLEM, 2, 11) == turn
    assert store.load(PROBLEM, 2, 12) is None


def test_no_file_is_left_beside_the_stored_ones(tmp_path: Path) -> None:
    store = Store(tmp_path, CONFIG)
    store.save(make_turn())
    store.save(make_turn(judged=True))
    assert [path.name for path in files(tmp_path)] == ["turn-000.json", "run.json"]


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, CONFIG)
    store.save(make_turn())

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="No space left on device; make room"):
        store.save(make_turn(judged=True))
    assert store.load(PROBLEM, 0, 0) == make_turn()
    assert [path.name for path in files(tmp_path)] == ["turn-000.json", "run.json"]


def test_problems_that_are_paths_stay_inside_the_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "run", CONFIG)
    for problem in ("/home/someone/relu.py", "../relu.py", "relu.py"):
        store.save(make_turn(problem=problem))
        assert store.load(problem, 0, 0) == make_turn(problem=problem)
    assert len(list((tmp_path / "run" / "file").iterdir())) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_another_configuration_is_refused_and_what_differs_named(tmp_path: Path) -> None:
    Store(tmp_path, CONFIG)
    Store(tmp_path, CONFIG)
    with pytest.raises(UsageError, match=r"n was 3 and is now 4.*--out"):
        Store(tmp_path, {**CONFIG, "n": 4})


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="choose another --out"):
        Store(tmp_path, CONFIG)


@pytest.mark.parametrize("content", ["", '{"schema_version": 1, "con', '{"schema_version": 2, "config": {}}', "\0"])
def test_a_damaged_run_file_is_named(tmp_path: Path, content: str) -> None:
    Store(tmp_path, CONFIG)
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UsageError, match=r"run\.json cannot be read.*choose another --out"):
        Store(tmp_path, CONFIG)


def test_a_truncated_turn_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path, CONFIG)
    store.save(make_turn(verdict=make_verdict(), judged=True))
    path = tmp_path / PROBLEM / "sample-0" / "turn-000.json"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"turn-000\.json cannot be read.*delete it"):
        store.load(PROBLEM, 0, 0)
    with pytest.raises(UsageError, match=r"turn-000\.json"):
        store.spent()


def test_a_turn_that_was_moved_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path, CONFIG)
    store.save(make_turn())
    (tmp_path / PROBLEM / "sample-0").rename(tmp_path / PROBLEM / "sample-1")
    with pytest.raises(UsageError, match="a file was moved"):
        store.load(PROBLEM, 1, 0)


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        Store(tmp_path / "file" / "run", CONFIG)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission_is_a_usage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(UsageError, match="choose another --out"):
        Store(tmp_path / "run", CONFIG)


def test_costs_add_up_and_are_unknown_when_one_is(tmp_path: Path) -> None:
    store = Store(tmp_path, CONFIG)
    assert store.spent().cost_usd == 0.0
    store.save(make_turn())
    store.save(make_turn(sample=1))
    assert store.spent().cost_usd == 1.0
    store.save(make_turn(sample=2, cost_usd=None))
    assert store.spent().cost_usd is None


def test_an_answer_is_on_disk_before_it_is_judged(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator([SandboxError("the machine died")])
    with pytest.raises(SandboxError):
        play(tmp_path, ScriptedModel([make_answer()]), evaluator, "single-shot")
    turn = Store(tmp_path, CONFIG).load(PROBLEM, 0, 0)
    assert turn is not None
    assert (turn.answer, turn.judged, turn.verdict) == (make_answer(), False, None)


@pytest.mark.parametrize("agent", ["single-shot", "multi-turn"])
def test_a_complete_run_asks_and_judges_nothing_again(tmp_path: Path, agent: str) -> None:
    answers = [make_answer(0), make_answer(1), make_answer(2)]
    verdicts = [make_verdict(Status.WRONG_VALUE), make_verdict(speedup=3.0), make_verdict(speedup=2.0)]
    first = play(tmp_path, ScriptedModel(answers), ScriptedEvaluator(verdicts), agent)
    model, evaluator = ScriptedModel([]), ScriptedEvaluator([])
    again = play(tmp_path, model, evaluator, agent)
    assert again == first
    assert (model.asked, evaluator.sources) == ([], [])
    assert first.best is not None
    assert first.best.speedup == 3.0


@pytest.mark.parametrize("agent", ["single-shot", "multi-turn"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_interrupted_before_an_answer_only_the_rest_is_asked(tmp_path: Path, agent: str, at: int) -> None:
    answers: list[Any] = [make_answer(number) for number in range(3)]
    verdicts = [make_verdict(speedup=1.0 + number) for number in range(3)]
    whole = play(tmp_path / "whole", ScriptedModel(answers), ScriptedEvaluator(verdicts), agent)

    interrupted = ScriptedModel([*answers[:at], KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", interrupted, ScriptedEvaluator(verdicts), agent)
    model, evaluator = ScriptedModel(answers[at:]), ScriptedEvaluator(verdicts[at:])
    assert play(tmp_path / "run", model, evaluator, agent) == whole
    assert len(model.asked) == len(evaluator.sources) == 3 - at


@pytest.mark.parametrize("agent", ["single-shot", "multi-turn"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_interrupted_while_judging_the_answer_is_judged_and_not_asked_again(
    tmp_path: Path, agent: str, at: int
) -> None:
    answers = [make_answer(number) for number in range(3)]
    verdicts: list[Any] = [make_verdict(speedup=1.0 + number) for number in range(3)]
    whole = play(tmp_path / "whole", ScriptedModel(answers), ScriptedEvaluator(verdicts), agent)

    interrupted = ScriptedEvaluator([*verdicts[:at], SandboxError("interrupted")])
    with pytest.raises(SandboxError):
        play(tmp_path / "run", ScriptedModel(answers), interrupted, agent)
    model, evaluator = ScriptedModel(answers[at + 1 :] or ["never asked"]), ScriptedEvaluator(verdicts[at:])
    assert play(tmp_path / "run", model, evaluator, agent) == whole
    assert len(model.asked) == 2 - at
    assert len(evaluator.sources) == 3 - at


@pytest.mark.parametrize("agent", ["single-shot", "multi-turn"])
def test_interrupted_after_a_verdict_it_is_kept(tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [make_answer(number) for number in range(3)]
    verdicts = [make_verdict(speedup=1.0 + number) for number in range(3)]
    finish = RecordedModel.finish

    def interrupt(self: RecordedModel, turn: Any) -> bool:
        finish(self, turn)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecordedModel, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path, ScriptedModel(answers), ScriptedEvaluator(verdicts), agent)
    model, evaluator = ScriptedModel(answers[1:]), ScriptedEvaluator(verdicts[1:])
    trajectory = play(tmp_path, model, evaluator, agent)
    assert [turn.speedup for turn in trajectory.turns] == [1.0, 2.0, 3.0]
    assert len(model.asked) == len(evaluator.sources) == 2


def test_a_stored_conversation_is_the_one_that_the_model_is_asked_to_continue(tmp_path: Path) -> None:
    verdicts = [make_verdict(Status.COMPILE_ERROR), make_verdict()]
    interrupted = ScriptedModel([make_answer(0), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, interrupted, ScriptedEvaluator(verdicts), "multi-turn")
    model = ScriptedModel([make_answer(1)])
    play(tmp_path, model, ScriptedEvaluator(verdicts[1:]), "multi-turn")
    assert model.asked[0] == interrupted.asked[1]


def test_a_farewell_is_stored_and_not_judged(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator([make_verdict()])
    trajectory = play(tmp_path, ScriptedModel([make_answer(), "<done/>"]), evaluator, "multi-turn")
    assert [turn.verdict is None for turn in trajectory.turns] == [False, True]
    assert play(tmp_path, ScriptedModel([]), ScriptedEvaluator([]), "multi-turn") == trajectory
    assert len(evaluator.sources) == 1


def test_an_answer_without_code_is_not_judged_again(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator()
    trajectory = play(tmp_path, ScriptedModel(["no code here"]), evaluator, "single-shot")
    assert [turn.verdict.status for turn in trajectory.turns if turn.verdict] == [Status.FORMAT_ERROR] * 3
    again = ScriptedEvaluator()
    assert play(tmp_path, ScriptedModel([]), again, "single-shot") == trajectory
    assert again.format_errors == []


def test_an_answer_to_another_prompt_is_refused(tmp_path: Path) -> None:
    play(tmp_path, ScriptedModel([make_answer()]), ScriptedEvaluator(), "single-shot")
    recorded = RecordedModel(ScriptedModel([]), Store(tmp_path, CONFIG), PROBLEM)
    judge = cast(Evaluator, RecordedEvaluator(cast(Evaluator, ScriptedEvaluator()), recorded))
    env = SingleTurnEnv(make_problem(source="import torch\n"), evaluator=judge)
    with pytest.raises(UsageError, match="another text than would be sent"):
        SingleShot(recorded, n=3).run(env, PROBLEM, recorded.finish)
