"""What a run would take: every agent's prompts are counted with what they may hold."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbenv.agents import Message
from kbenv.agents.catalog import Settings, get_agent
from kbenv.agents.context import Context
from kbenv.cli.dry_run import (
    ANSWER_TOKENS,
    JUDGE_CHARACTERS,
    PROFILE_CHARACTERS,
    ROLE_CHARACTERS,
    estimate,
    feedback_tokens,
)
from kbenv.cli.run import Run
from kbenv.feedback import render_feedback
from kbenv.prompt import PromptOptions, render_prompt
from kbenv.prompts import render
from kbenv.protocol import get_protocol
from kbenv.verdict import Status
from tests.fakes import make_problem, make_verdict

GOLDEN = Path(__file__).parent / "golden"
PROBLEM = make_problem()


def planned(agent: str, feedback: str = "e", diagnostics: tuple[Any, ...] = (), **settings: Any) -> Run:
    protocol = get_protocol("verified").model_copy(update={"diagnostics": diagnostics})
    evaluator = SimpleNamespace(protocol=protocol, device="cpu", backend="auto")
    model = SimpleNamespace(name="some", problems=[PROBLEM], service=None)
    arguments = argparse.Namespace(feedback=feedback)
    return Run(
        arguments, get_agent(agent), cast(Any, model), Settings(**settings), cast(Any, evaluator), PromptOptions()
    )


def task_tokens(run: Run) -> int:
    text = render_prompt(PROBLEM, run.evaluator.protocol, "cpu")
    system = render("system.j2", turns=run.kind.turns(run.settings))
    return run.settings.context.count([Message("system", system), Message("user", text)])


def earlier_tokens(run: Run) -> tuple[int, int]:
    """Calls, and tokens of all prompts beside the task."""
    calls, prompt, _ = estimate(run)
    return calls, prompt - calls * task_tokens(run)


def test_the_longest_failure_that_is_shown_is_within_what_feedback_is_taken_to_have() -> None:
    text = "a word and 4 more\n" * 10_000
    for status in Status:
        if status is not Status.PASSED:
            shown = render_feedback(make_verdict(status, detail=text, output=text))
            assert len(shown) - 2 * shown.count("\n| ") < 3.5 * feedback_tokens(planned("multi-turn")), status


@pytest.mark.parametrize("path", sorted((GOLDEN / "feedback").glob("*.txt")), ids=lambda path: path.stem)
def test_every_golden_feedback_is_within_the_allowance_for_its_kind(path: Path) -> None:
    allowed = PROFILE_CHARACTERS if path.stem == "profile" else JUDGE_CHARACTERS
    assert len(path.read_text()) < allowed


@pytest.mark.parametrize("path", sorted((GOLDEN / "prompts").glob("skills_*.md")), ids=lambda path: path.stem)
def test_the_roles_own_words_are_within_their_allowance(path: Path) -> None:
    assert len(path.read_text()) < ROLE_CHARACTERS


@pytest.mark.parametrize(
    ("feedback", "diagnostics", "characters"),
    [
        ("e", (), 2000 + 6000 + 2000),
        ("e", ("access",), 2000 + 6000 + 1600 + 2000),
        ("e,p", (), 2000 + 6000 + 2000),
        ("p", (), 6000),
        ("none", ("access",), 0),
    ],
)
def test_feedback_has_what_the_switches_show(feedback: str, diagnostics: tuple[Any, ...], characters: int) -> None:
    assert feedback_tokens(planned("multi-turn", feedback, diagnostics)) == round(characters / 3.5)


EXCHANGE = ANSWER_TOKENS + round(10_000 / 3.5)


@pytest.mark.parametrize(
    ("agent", "settings", "calls", "exchanges"),
    [
        ("single-shot", {"n": 4}, 4, 0),
        ("multi-turn", {"turns": 5}, 5, 0 + 1 + 2 + 3 + 4),
        ("multi-turn", {"turns": 3, "n": 2}, 6, 2 * (0 + 1 + 2)),
        ("multi-turn", {"turns": 5, "context": Context("last", k=2)}, 5, 0 + 1 + 2 + 2 + 2),
        ("multi-turn", {"turns": 5, "context": Context("best-last", k=1)}, 5, 0 + 1 + 2 + 2 + 2),
        ("search", {"calls": 6}, 6, 0 + 0 + 0 + 0 + 1 + 1),
        ("search", {"calls": 6, "selection": "evolution"}, 6, 0 + 0 + 0 + 0 + 2 + 2),
        ("reflect", {"calls": 6}, 6, 0 + 1 + 2 + 3 + 3 + 3),
        ("reflect", {"calls": 6, "n": 2}, 6, 2 * (0 + 1 + 2)),
    ],
)
def test_as_many_earlier_answers_are_counted_as_a_prompt_may_hold(
    agent: str, settings: dict[str, Any], calls: int, exchanges: int
) -> None:
    assert earlier_tokens(planned(agent, **settings)) == (calls, exchanges * EXCHANGE)


def test_summaries_are_calls_of_their_own_unless_calls_are_bounded() -> None:
    context = Context("summary", k=1)  # of turns 1 and 2 before the fourth, of 3 and 4 before the sixth
    calls, earlier = earlier_tokens(planned("multi-turn", turns=6, context=context))
    assert (calls, earlier) == (8, (0 + 1 + 2 + 3 + 4 + 4 + 4 + 4) * EXCHANGE)
    assert earlier_tokens(planned("multi-turn", calls=6, context=context))[0] == 6


def test_the_skills_agent_is_sent_an_example_with_each_skill() -> None:
    pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")
    from kbenv.agents.skills.library import load_library, read_kernel

    calls, earlier = earlier_tokens(planned("skills", calls=4))
    beside = (earlier - (1 + 2 + 2) * EXCHANGE) / 3
    longest = max(len(read_kernel(one.pair.before) + read_kernel(one.pair.after)) for one in load_library())
    assert calls == 4
    assert beside > (longest + ROLE_CHARACTERS) / 3.5
