"""The skills agent before a real judge: what it measures leads it from one skill to the next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbenv.agents import Message
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.skills import Skills
from kbenv.agents.skills.library import load_library, read_kernel
from kbenv.env import SingleTurnEnv
from tests.judge.evaluators import GetEvaluator

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

AFTER = {skill.title: skill.pair.after for skill in load_library() if skill.pair.problem == "core/level1/matmul"}


def apply_what_is_asked(messages: Sequence[Message]) -> str:
    """The library's answer for the skill that the writer's prompt names; at first the slowest one."""
    named = [kernel for title, kernel in AFTER.items() if f"Make one change to it: {title}." in messages[-1].content]
    return f"```python\n{read_kernel(named[0] if named else 'matmul_c_columns')}```\n"


@pytest.mark.slow
def test_a_slow_product_is_made_fast_in_two_steps(get_evaluator: GetEvaluator) -> None:
    env = SingleTurnEnv("core/level1/matmul", evaluator=get_evaluator("verified brisk"))
    trajectory = Skills(ScriptedModel([apply_what_is_asked]), calls=3).run(env, "core/level1/matmul")
    sources = [read_kernel(f"matmul_c_{name}") for name in ("columns", "rows", "tiles")]
    assert [turn.code for turn in trajectory.turns] == sources
    speedups = [turn.speedup for turn in trajectory.turns]
    assert None not in speedups
    assert speedups == sorted(speedups, key=lambda speedup: speedup or 0.0)
