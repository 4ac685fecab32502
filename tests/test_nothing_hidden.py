"""Nothing that an agent reads, asks or decides differs by which hidden check failed, nor by what it printed there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.agents import Message
from kbenv.agents.catalog import AGENTS, Settings, get_agent
from kbenv.agents.context import POLICIES, Context
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.stopping import Stop
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.verdict import HIDDEN_STAGES, Check, Stage, Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

FAILED = tuple(status for status in Status if status not in (Status.PASSED, Status.NO_CUSTOM_KERNEL))
HIDDEN = tuple(sorted({*HIDDEN_STAGES, Stage.PROVENANCE}))


def hidden_failures() -> Iterator[Verdict]:
    """Every way to fail after the standard trials, each as telling as it can be."""
    for stage in HIDDEN:
        for status in FAILED:
            yield failure(status, stage, f"{status.value} in {stage.value}")
    yield failure(Status.WRONG_HIDDEN, Stage.STANDARD, "in a late standard trial")


def failure(status: Status, stage: Stage, secret: str) -> Verdict:
    checks = [Check(name=f"standard-{trial}", stage=Stage.STANDARD, passed=True) for trial in range(5)]
    checks.append(Check(name=f"hidden-{secret}", stage=stage, passed=False, evidence={"max_abs_error": 7.5}))
    return make_verdict(
        status, stage=stage, checks=tuple(checks), message=secret, detail=secret, output=secret, flags=(secret,),
        seconds={secret: 1.0},
    )  # fmt: skip


def profile(verdict: Verdict, source: str) -> str:
    return f"profile of {verdict.message}"


def play(agent: str, verdicts: Sequence[Verdict], settings: Settings, **options: Any) -> tuple[Any, ...]:
    """All that the model was asked, and how often."""
    kind = get_agent(agent)

    def reply(messages: Sequence[Message]) -> str:
        return make_answer(len(model.asked))

    model = ScriptedModel([reply])
    options |= {"evaluator": cast(Evaluator, ScriptedEvaluator(verdicts))}
    env: Any = (
        SingleTurnEnv(make_problem(), **options)
        if kind.episode == "single"
        else MultiTurnEnv(make_problem(), max_turns=kind.turns(settings), **options)
    )
    trajectory = kind.make(model, settings).run(env, "core/level1/relu")
    read = tuple((turn.observation, turn.feedback, turn.parents) for turn in trajectory.turns)
    return tuple(model.asked), tuple(model.purposes), read


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("switches", ["e", "p", "ep"])
def test_no_agent_reads_asks_or_decides_by_which_hidden_check_failed(agent: str, policy: Any, switches: str) -> None:
    settings = Settings(calls=9, context=Context(policy, k=1), stop=Stop(target_speedup=2.5, patience=4))
    options = {"execution_feedback": "e" in switches, "profiler": profile if "p" in switches else None}
    seen = set()
    for verdict in hidden_failures():
        verdicts = [make_verdict(Status.WRONG_VALUE), verdict, make_verdict(speedup=2.0), verdict, verdict]
        seen.add(play(agent, verdicts, settings, **options))
    assert len(seen) == 1


@given(st.sampled_from(FAILED), st.sampled_from(HIDDEN), st.text(max_size=40), st.sampled_from(sorted(AGENTS)))
def test_whatever_a_submission_says_there_is_not_heard(status: Status, stage: Stage, secret: str, agent: str) -> None:
    settings = Settings(calls=4)
    verdicts = [[failure(status, stage, text), make_verdict(speedup=1.5)] for text in (secret, "other")]
    assert play(agent, verdicts[0], settings) == play(agent, verdicts[1], settings)


def test_a_failure_that_is_not_hidden_is_told() -> None:
    """The tests above compare texts that could differ."""
    settings = Settings(calls=4)
    told = {play("multi-turn", [make_verdict(status)], settings) for status in (Status.TIMEOUT, Status.RUNTIME_ERROR)}
    assert len(told) == 2
