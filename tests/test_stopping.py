"""When it is enough."""

from __future__ import annotations

from typing import cast

import pytest

from kbenv.agents import Turn
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.stopping import CountedModel, Stop
from kbenv.env import MultiTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

WRONG = make_verdict(Status.WRONG_VALUE)


def turns(*verdicts: Verdict) -> list[Turn]:
    return [Turn(0, index, "o", "a", "c\n", verdict, 0.0) for index, verdict in enumerate(verdicts)]


def right(speedup: float) -> Verdict:
    return make_verdict(speedup=speedup)


@pytest.mark.parametrize(
    ("stop", "verdicts", "enough"),
    [
        (Stop(), (right(9.0),) * 9, False),
        (Stop(target_speedup=2.0), (), False),
        (Stop(target_speedup=2.0), (right(1.9), WRONG), False),
        (Stop(target_speedup=2.0), (right(2.0), WRONG), True),
        (Stop(target_speedup=2.0), (make_verdict(Status.NO_CUSTOM_KERNEL, speedup=5.0),), False),
        (Stop(patience=2), (WRONG,) * 9, False),
        (Stop(patience=2), (right(1.0), WRONG), False),
        (Stop(patience=2), (right(1.0), WRONG, right(1.0)), True),
        (Stop(patience=2), (right(1.0), WRONG, right(1.1)), False),
        (Stop(patience=2), (right(1.0), right(1.1), WRONG, WRONG), True),
    ],
)
def test_a_rule_is_reached_when_it_says(stop: Stop, verdicts: tuple[Verdict, ...], enough: bool) -> None:
    assert stop.reached(turns(*verdicts)) is enough


@pytest.mark.parametrize(
    ("stop", "answers"), [(Stop(), 6), (Stop(target_speedup=1.5), 2), (Stop(patience=3), 5), (Stop(1.3, 1), 2)]
)
def test_a_conversation_ends_when_it_is_enough(stop: Stop, answers: int) -> None:
    verdicts = [WRONG, right(1.5), right(1.2), WRONG, right(1.4), right(9.0)]
    env = MultiTurnEnv(make_problem(), evaluator=cast(Evaluator, ScriptedEvaluator(verdicts)), max_turns=6)
    trajectory = MultiTurn(ScriptedModel([make_answer()]), turns=6, stop=stop).run(env, "p")
    assert len(trajectory.turns) == answers


def test_counted_calls_are_those_of_every_purpose() -> None:
    model = CountedModel(ScriptedModel(["a"]), calls=2)
    assert (model.left, model.spent) == (2, False)
    model.query([])
    model.query([], purpose="summary")
    assert (model.left, model.spent, model.calls, model.tokens) == (0, True, 2, 30)
