"""The division of labour: who is asked what, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kbenv.agents import Trajectory
from kbenv.agents.context import Context
from kbenv.agents.reflect import Reflect
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.stopping import Stop
from kbenv.env import SingleTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

PROBLEM = "core/level1/relu"
WRONG = make_verdict(Status.WRONG_VALUE)


class Cast(ScriptedModel):
    """Numbers its answers and its reflections."""

    def query(self, messages: Any, *, sample: int = 0, purpose: str = "answer") -> Any:
        said = make_answer(len(self.asked)) if purpose == "answer" else f"Reflection {len(self.asked)}."
        self.replies = [said]
        return super().query(messages, sample=sample, purpose=purpose)


def right(speedup: float) -> Verdict:
    return make_verdict(speedup=speedup)


def play(verdicts: Sequence[Verdict], calls: int, **options: Any) -> tuple[ScriptedModel, Trajectory]:
    model = Cast([""])
    env = SingleTurnEnv(make_problem(), evaluator=cast(Evaluator, ScriptedEvaluator(verdicts)))
    return model, Reflect(model, calls, **options).run(env, PROBLEM)


def roles(model: ScriptedModel) -> str:
    """W: the task alone; R: the reviewer; F: a repair; O: the optimiser."""
    return "".join(
        "R" if purpose == "reflection"
        else "O" if "# Right answers so far" in messages[-1].content
        else "F" if len(messages) == 4
        else "W"
        for purpose, messages in zip(model.purposes, model.asked, strict=True)
    )  # fmt: skip


def test_a_failure_goes_to_the_reviewer_and_a_right_answer_to_the_optimiser() -> None:
    model, trajectory = play([WRONG, right(1.0), right(2.0), WRONG, right(3.0)], 9)
    assert roles(model) == "WRFOORFOO"
    assert [turn.index for turn in trajectory.turns] == list(range(7))
    assert trajectory.best is not None
    assert trajectory.best.speedup == 3.0


def test_the_reviewer_reads_task_answer_and_feedback_and_the_writer_reads_the_reviewer() -> None:
    model, _ = play([WRONG, right(1.0)], 3)
    (question,) = model.asked[1]
    assert "# Task" in question.content
    assert make_answer(0).strip() in question.content
    assert "WRONG_VALUE" in question.content
    repair = model.asked[2]
    assert repair[2].content == make_answer(0)
    assert repair[3].content.startswith("WRONG_VALUE")
    assert "Reflection 1." in repair[3].content


def test_the_reviewer_is_told_what_did_not_help() -> None:
    model, _ = play([WRONG], 6)
    assert "which did not help" not in model.asked[1][0].content
    assert "1. Reflection 1." in model.asked[3][0].content


def test_after_so_many_repairs_the_approach_is_changed() -> None:
    model, _ = play([WRONG], 7, repairs=2)
    assert roles(model) == "WRFRFRF"
    assert "Take a different one" not in model.asked[4][-1].content
    assert "failed 3 times. Take a different one" in model.asked[6][-1].content


def test_what_the_optimiser_breaks_is_repaired_and_then_given_up() -> None:
    model, _ = play([right(1.0), WRONG], 8, repairs=2)
    assert roles(model) == "WORFRFOR"
    assert "# Tried after them, and failed" in model.asked[6][-1].content


def test_the_optimiser_reads_right_answers_from_the_slowest_to_the_fastest() -> None:
    model, _ = play([right(2.0), right(1.0), right(3.0), right(0.5)], 5)
    said = model.asked[4][-1].content
    assert said.index("## 1x") < said.index("## 2x") < said.index("## 3x")
    assert "## 0.5x" not in said


def test_the_optimiser_reads_fewer_where_they_do_not_fit() -> None:
    def words(messages: Any) -> int:
        return sum(len(message.content.split()) for message in messages)

    whole, _ = play([right(1.0), right(2.0)], 3)
    limit = words(whole.asked[2]) - 1
    model, _ = play([right(1.0), right(2.0)], 3, context=Context(max_tokens=limit, count=words))
    assert "## 2x" in model.asked[2][-1].content
    assert "## 1x" not in model.asked[2][-1].content


def test_calls_of_the_reviewer_count() -> None:
    for calls in range(1, 9):
        model, trajectory = play([WRONG], calls)
        assert len(model.asked) == calls
        assert len(trajectory.turns) == (calls + 1) // 2


def test_samples_are_independent() -> None:
    model, trajectory = play([WRONG], 3, n=2)
    assert roles(model) == "WRFWRF"
    assert [(turn.sample, turn.index) for turn in trajectory.turns] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_it_stops_when_it_is_enough() -> None:
    model, _ = play([WRONG, right(5.0)], 10, stop=Stop(target_speedup=4.0))
    assert roles(model) == "WRF"


def test_a_hidden_failure_reads_the_same_to_the_reviewer_whatever_it_was() -> None:
    asked = set()
    for status in (Status.WRONG_HIDDEN, Status.TIMEOUT, Status.RUNTIME_ERROR):
        model, _ = play([make_verdict(status, stage="hidden"), right(1.0)], 4)
        asked.add(tuple(model.asked))
    assert len(asked) == 1
