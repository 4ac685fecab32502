"""Both agents on the real environments, with a scripted model and a scripted judge."""

from __future__ import annotations

from typing import cast

import pytest

from kbenv.agents import Completion, Trajectory, Turn
from kbenv.agents.model import ContextWindowError
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.single_shot import SingleShot
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.errors import ModelError, SandboxError
from kbenv.evaluator import Evaluator
from kbenv.extraction import extract_code
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import ScriptedModel, make_answer

PROBLEM = "core/level1/relu"
Outcome = Verdict | Exception


def single(evaluator: ScriptedEvaluator) -> SingleTurnEnv:
    return SingleTurnEnv(make_problem(), evaluator=cast(Evaluator, evaluator))


def multi(evaluator: ScriptedEvaluator, max_turns: int = 10) -> MultiTurnEnv:
    return MultiTurnEnv(make_problem(), evaluator=cast(Evaluator, evaluator), max_turns=max_turns)


def test_single_shot_asks_the_same_question_n_times() -> None:
    model = ScriptedModel([make_answer()])
    trajectory = SingleShot(model, n=5).run(single(ScriptedEvaluator()), PROBLEM)
    assert len(set(model.asked)) == 1
    assert [message.role for message in model.asked[0]] == ["system", "user"]
    assert model.samples == [0, 1, 2, 3, 4]
    assert [(turn.sample, turn.index) for turn in trajectory.turns] == [(n, 0) for n in range(5)]


def test_best_of_n_is_the_fastest_credited_answer() -> None:
    verdicts: list[Outcome] = [
        make_verdict(speedup=1.5),
        make_verdict(Status.NO_CUSTOM_KERNEL, speedup=9.0),
        make_verdict(speedup=2.5),
        make_verdict(Status.WRONG_VALUE),
        make_verdict(speedup=0.5),
    ]
    trajectory = SingleShot(ScriptedModel([make_answer()]), n=5).run(single(ScriptedEvaluator(verdicts)), PROBLEM)
    assert trajectory.best is not None
    assert (trajectory.best.sample, trajectory.best.speedup) == (2, 2.5)


def test_without_a_credited_answer_there_is_no_best() -> None:
    verdicts: list[Outcome] = [make_verdict(Status.WRONG_VALUE)]
    trajectory = SingleShot(ScriptedModel([make_answer()]), n=2).run(single(ScriptedEvaluator(verdicts)), PROBLEM)
    assert trajectory.best is None


def test_a_turn_carries_prompt_answer_code_verdict_reward_and_tokens() -> None:
    completion = Completion(make_answer(7), 100, 50, 0.02, "stop")
    verdict = make_verdict(speedup=2.0)
    trajectory = SingleShot(ScriptedModel([completion]), n=1).run(single(ScriptedEvaluator([verdict])), PROBLEM)
    (turn,) = trajectory.turns
    assert turn.observation.startswith("# Task")
    assert (turn.answer, turn.code) == (make_answer(7), extract_code(make_answer(7)))
    assert (turn.verdict, turn.reward) == (verdict, 0.75)
    assert (turn.prompt_tokens, turn.completion_tokens, turn.cost_usd, turn.finish_reason) == (100, 50, 0.02, "stop")
    assert (trajectory.problem, trajectory.agent, trajectory.model) == (PROBLEM, "single-shot", "scripted")


def test_multi_turn_sends_the_feedback_and_keeps_the_conversation() -> None:
    verdicts: list[Outcome] = [make_verdict(Status.COMPILE_ERROR), make_verdict(Status.WRONG_VALUE), make_verdict()]
    model = ScriptedModel([make_answer(number) for number in range(3)])
    trajectory = MultiTurn(model, turns=3).run(multi(ScriptedEvaluator(verdicts), 3), PROBLEM)
    roles = [message.role for message in model.asked[2]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    contents = [message.content for message in model.asked[2]]
    assert contents[2] == make_answer(0)
    assert contents[3].startswith("COMPILE_ERROR")
    assert contents[5].startswith("WRONG_VALUE")
    assert model.asked[2][:4] == model.asked[1]
    assert [turn.observation for turn in trajectory.turns] == [contents[1], contents[3], contents[5]]
    assert [turn.index for turn in trajectory.turns] == [0, 1, 2]


def test_multi_turn_stops_when_the_environment_does() -> None:
    model = ScriptedModel([make_answer(0), make_answer(1) + "\n<done/>\n"])
    trajectory = MultiTurn(model, turns=10).run(multi(ScriptedEvaluator()), PROBLEM)
    assert len(trajectory.turns) == 2


def test_multi_turn_asks_no_more_than_its_turns() -> None:
    model = ScriptedModel([make_answer()])
    MultiTurn(model, turns=2).run(multi(ScriptedEvaluator(), 10), PROBLEM)
    assert len(model.asked) == 2


def test_a_farewell_has_no_verdict_of_its_own() -> None:
    model = ScriptedModel([make_answer(), "Nothing left to do. <done/>"])
    trajectory = MultiTurn(model, turns=10).run(multi(ScriptedEvaluator([make_verdict(speedup=2.0)])), PROBLEM)
    assert [turn.verdict is None for turn in trajectory.turns] == [False, True]
    assert trajectory.turns[1].reward == 0.0
    assert trajectory.best == trajectory.turns[0]


def test_multi_turn_samples_are_independent_conversations() -> None:
    model = ScriptedModel([make_answer()])
    trajectory = MultiTurn(model, turns=2, n=2).run(multi(ScriptedEvaluator(), 2), PROBLEM)
    assert [(turn.sample, turn.index) for turn in trajectory.turns] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert model.asked[2] == model.asked[0]
    assert model.samples == [0, 0, 1, 1]


def test_a_conversation_that_outgrows_the_model_ends_with_the_turns_it_had() -> None:
    model = ScriptedModel([make_answer(), ContextWindowError("too long")])
    trajectory = MultiTurn(model, turns=5).run(multi(ScriptedEvaluator()), PROBLEM)
    assert len(trajectory.turns) == 1


@pytest.mark.parametrize("fault", [SandboxError("died"), ModelError("gone")])
def test_a_fault_is_raised_after_the_turns_before_it_were_seen(fault: Exception) -> None:
    seen: list[Turn] = []
    verdicts: list[Outcome] = [make_verdict(), fault if isinstance(fault, SandboxError) else make_verdict()]
    answers: list[str | Completion | BaseException] = [make_answer(), fault if isinstance(fault, ModelError) else "x"]
    answers[1] = make_answer(1) if isinstance(fault, SandboxError) else fault
    with pytest.raises(type(fault)):
        SingleShot(ScriptedModel(answers), n=3).run(single(ScriptedEvaluator(verdicts)), PROBLEM, seen.append)
    assert len(seen) == 1


def test_an_empty_trajectory_has_no_best() -> None:
    assert Trajectory("p", "single-shot", "m", ()).best is None
