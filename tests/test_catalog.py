"""Agents by name, equal calls for all of them, and an agent of a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kbenv.agents import Message
from kbenv.agents.catalog import AGENTS, Settings, get_agent
from kbenv.agents.context import Context
from kbenv.agents.scripted import ScriptedModel
from kbenv.cli.agents import AGENT_NAMES
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.errors import UsageError
from kbenv.evaluator import Evaluator
from kbenv.verdict import Status
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

README = Path(__file__).parent.parent / "docs" / "agents.md"


def play(name: str, settings: Settings, verdicts: Sequence[Any] = ()) -> tuple[ScriptedModel, Any]:
    kind = get_agent(name)
    model = ScriptedModel([lambda messages: make_answer(hash(tuple(messages)) % 1000)])
    options: dict[str, Any] = {"evaluator": cast(Evaluator, ScriptedEvaluator(verdicts))}
    env: Any = (
        SingleTurnEnv(make_problem(), **options)
        if kind.episode == "single"
        else MultiTurnEnv(make_problem(), max_turns=kind.turns(settings), **options)
    )
    return model, kind.make(model, settings).run(env, "core/level1/relu")


def test_the_command_line_names_the_agents_that_there_are() -> None:
    assert tuple(AGENTS) == AGENT_NAMES


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("calls", [1, 2, 7, 10])
def test_every_agent_makes_the_calls_that_it_may_and_no_more(name: str, calls: int) -> None:
    context = Context("summary", k=1)
    verdicts = [make_verdict(Status.WRONG_VALUE), make_verdict(speedup=1.0)] * 10
    model, trajectory = play(name, Settings(calls=calls, context=context), verdicts)
    assert len(model.asked) == calls
    assert len(trajectory.turns) <= get_agent(name).answers(Settings(calls=calls))


@pytest.mark.parametrize(
    ("name", "settings", "answers", "turns"),
    [
        ("single-shot", Settings(), 5, 1),
        ("single-shot", Settings(n=3), 3, 1),
        ("single-shot", Settings(calls=10), 10, 1),
        ("multi-turn", Settings(), 10, 10),
        ("multi-turn", Settings(n=2, turns=4), 8, 4),
        ("multi-turn", Settings(n=2, calls=10), 10, 5),
        ("search", Settings(), 10, 1),
        ("search", Settings(calls=7), 7, 1),
        ("reflect", Settings(), 10, 1),
        ("reflect", Settings(n=2), 20, 1),
        ("reflect", Settings(n=2, calls=10), 10, 1),
    ],
)
def test_the_answers_of_a_problem_are_known_beforehand(name: str, settings: Settings, answers: int, turns: int) -> None:
    kind = get_agent(name)
    assert (kind.answers(settings), kind.turns(settings)) == (answers, turns)


def own_agent() -> str:
    """The agent that docs/agents.md shows."""
    text = README.read_text(encoding="utf-8")
    return text.split("```python\n", 1)[1].split("```", 1)[0]


def test_an_agent_of_ones_own_takes_ten_lines(tmp_path: Path) -> None:
    source = own_agent()
    assert len([line for line in source.splitlines() if line.strip()]) <= 10
    assert source in (README.parents[1] / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "mine.py"
    path.write_text(source)
    verdicts = [make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0)]
    model, trajectory = play(f"{path}:Mine", Settings(calls=3), verdicts)
    assert [turn.index for turn in trajectory.turns] == [0, 1, 2]
    assert trajectory.best is not None
    assert model.asked[1][-1] == Message("user", trajectory.turns[0].feedback)


def test_a_module_that_fails_when_it_is_imported_is_a_usage_error_that_says_where(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine(:\n")
    with pytest.raises(UsageError, match=r"SyntaxError: .*\(mine.py, line 1\)"):
        get_agent(f"{path}:Mine")
    path.write_text("import os\n\nraise ValueError('no')\n")
    with pytest.raises(UsageError, match=r"mine.py, line 3: ValueError: no"):
        get_agent(f"{path}:Mine")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no-such-agent", "must be one of single-shot"),
        ("no_such_module:Name", "cannot be imported"),
        ("/no/such/file.py:Name", "cannot be imported"),
        ("json:Name", "has no Name"),
        (":Name", "must be one of"),
    ],
)
def test_an_agent_that_there_is_not_is_a_usage_error(name: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        get_agent(name)
