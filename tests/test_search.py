"""The search: whom it refines, what it costs, and that nothing hidden steers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from kbenv.agents import Message, Trajectory
from kbenv.agents.scripted import Reply, ScriptedModel
from kbenv.agents.search import Search
from kbenv.agents.stopping import Stop
from kbenv.env import SingleTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.verdict import HIDDEN_STAGES, Stage, Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

PROBLEM = "core/level1/relu"
DISTINCT: list[Reply] = [make_answer(number) for number in range(40)]


def play(
    verdicts: Sequence[Verdict], replies: Sequence[Reply] = DISTINCT, **options: Any
) -> tuple[ScriptedModel, Trajectory]:
    model = ScriptedModel(replies)
    env = SingleTurnEnv(make_problem(), evaluator=cast(Evaluator, ScriptedEvaluator(verdicts)))
    return model, Search(model, **options).run(env, PROBLEM)


def parents(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [turn.parents for turn in trajectory.turns]


def right(speedup: float) -> Verdict:
    return make_verdict(speedup=speedup)


def test_a_beam_refines_the_best_of_all_so_far() -> None:
    verdicts = [right(1.0), right(3.0), make_verdict(Status.WRONG_VALUE), right(2.0)]
    verdicts += [right(0.5), right(4.0), right(0.5), right(0.5), *[right(0.1)] * 4]
    _, trajectory = play(verdicts, calls=12, parents=2, children=2)
    assert parents(trajectory) == [(), (), (), (), (1,), (1,), (3,), (3,), (5,), (5,), (1,), (1,)]
    assert [turn.sample for turn in trajectory.turns] == list(range(12))
    assert trajectory.best is trajectory.turns[5]


def test_a_child_reads_its_parent_and_what_became_of_it() -> None:
    model, trajectory = play([make_verdict(Status.COMPILE_ERROR), right(2.0)], calls=2, parents=1, children=1)
    child = model.asked[1]
    assert [message.role for message in child] == ["system", "user", "assistant", "user"]
    assert child[1] == model.asked[0][1]
    assert child[2].content == make_answer(0)
    assert child[3].content.startswith("COMPILE_ERROR")
    assert "Find the cause of the failure" in child[3].content
    assert trajectory.turns[1].messages == child


def test_a_right_parent_is_to_be_made_faster_and_others_are_named_by_speed() -> None:
    model, _ = play([right(2.0), right(1.5), right(3.0)], calls=4, parents=1, children=3)
    said = model.asked[3][-1].content
    assert said.startswith("PASSED")
    assert "credited with 2.0x, 1.5x" in said
    assert "Write a faster answer" in said


@pytest.mark.parametrize("calls", [1, 3, 4, 5, 10])
@pytest.mark.parametrize("selection", ["beam", "evolution"])
def test_calls_are_exact(calls: int, selection: Any) -> None:
    model, trajectory = play([right(1.0)], calls=calls, selection=selection)
    assert len(model.asked) == len(trajectory.turns) == calls


def test_failures_are_refined_by_how_far_they_came() -> None:
    statuses = [Status.COMPILE_ERROR, Status.WRONG_VALUE, Status.FORMAT_ERROR, Status.RUNTIME_ERROR]
    _, trajectory = play([make_verdict(status) for status in statuses], calls=5, parents=1, children=4)
    assert parents(trajectory)[4] == (1,)


def test_equal_sources_count_once() -> None:
    replies = [make_answer(0), make_answer(0), make_answer(1), make_answer(1)]
    verdicts = [right(3.0), right(3.0), right(2.0), right(2.0)]
    _, trajectory = play(verdicts, replies, calls=6, parents=2, children=1)
    assert parents(trajectory) == [(), (), (0,), (0,), (2,), (0,)]


def test_answers_without_code_are_no_parents() -> None:
    _, trajectory = play([right(1.0)], ["I'm sorry."], calls=6)
    assert parents(trajectory) == [()] * 6


def test_evolution_draws_parents_has_children_of_two_and_can_be_repeated() -> None:
    verdicts = [right(1.0 + number / 10) for number in range(40)]
    model, first = play(verdicts, calls=40, selection="evolution")
    _, second = play(verdicts, calls=40, selection="evolution")
    _, other = play(verdicts, calls=40, selection="evolution", seed=1)
    assert parents(first) == parents(second) != parents(other)
    of_two = next(number for number, turn in enumerate(first.turns) if len(turn.parents) == 2)
    asked = model.asked[of_two]
    assert [message.role for message in asked] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "You have seen 2 answers" in asked[-1].content
    assert len({parent for turn in first.turns for parent in turn.parents}) > 5


def test_a_search_stops_when_it_is_enough() -> None:
    _, trajectory = play([right(1.0), right(2.5)], calls=20, stop=Stop(target_speedup=2.0))
    assert len(trajectory.turns) == 4  # the generation in progress is judged
    _, trajectory = play([right(1.0)], calls=20, stop=Stop(patience=5))
    assert len(trajectory.turns) == 8


def test_children_are_asked_for_at_once_and_judged_in_order() -> None:
    def reply(messages: Sequence[Message]) -> str:
        return make_answer(len(messages))

    verdicts = [right(1.0 + number) for number in range(8)]
    seen: list[int] = []
    model = ScriptedModel([reply])
    env = SingleTurnEnv(make_problem(), evaluator=cast(Evaluator, ScriptedEvaluator(verdicts)))
    trajectory = Search(model, 8, at_once=4).run(env, PROBLEM, lambda turn: seen.append(turn.sample))
    assert seen == list(range(8))
    assert [turn.speedup for turn in trajectory.turns] == [1.0 + number for number in range(8)]
    assert sorted(model.samples) == list(range(8))


@pytest.mark.parametrize("selection", ["beam", "evolution"])
def test_which_hidden_check_failed_steers_nothing(selection: Any) -> None:
    hidden = [
        make_verdict(status, stage=stage)
        for stage in sorted(HIDDEN_STAGES)
        for status in (Status.WRONG_HIDDEN, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.ILLEGAL_ACCESS)
    ]
    hidden.append(make_verdict(Status.TAMPERED, stage=Stage.PROVENANCE))
    asked = set()
    for verdict in hidden:
        verdicts = [make_verdict(Status.WRONG_VALUE), verdict, make_verdict(Status.COMPILE_ERROR), verdict]
        model, trajectory = play(verdicts, calls=12, selection=selection)
        asked.add((tuple(model.asked), tuple(parents(trajectory))))
    assert len(asked) == 1
