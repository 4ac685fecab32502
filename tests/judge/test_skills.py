"""The skills agent before a real judge: what it measures leads it from one skill to the next.

On a GPU: `pytest -m gpu tests/judge/test_skills.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from kbenv.agents import Message
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.skills import Skills
from kbenv.agents.skills.library import load_library, read_kernel
from kbenv.env import SingleTurnEnv
from tests.judge.evaluators import GetEvaluator

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

AFTER = {skill.title: skill.pair.after for skill in load_library() if skill.pair.problem == "core/level1/matmul"}


STEPS = {
    "cpu": ("matmul_c_columns", "matmul_c_rows", "matmul_c_tiles"),
    "cuda:0": ("matmul_cuda_naive", "matmul_cuda_shared", "matmul_cuda_registers"),
}


def apply_what_is_asked(messages: Sequence[Message], first: str) -> str:
    """The library's answer for the skill that the writer's prompt names; `first` where it names none."""
    named = [kernel for title, kernel in AFTER.items() if f"Make one change to it: {title}." in messages[-1].content]
    return f"```python\n{read_kernel(named[0] if named else first)}```\n"


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_slow_product_is_made_fast_in_two_steps(get_evaluator: GetEvaluator, device: str) -> None:
    env = SingleTurnEnv("core/level1/matmul", evaluator=get_evaluator("verified brisk", device))
    model = ScriptedModel([partial(apply_what_is_asked, first=STEPS[device][0])])
    trajectory = Skills(model, calls=3).run(env, "core/level1/matmul")
    said = [
        turn.verdict and (turn.verdict.status, turn.verdict.message, turn.verdict.detail) for turn in trajectory.turns
    ]
    assert [turn.code for turn in trajectory.turns] == [read_kernel(name) for name in STEPS[device]], said
    speedups = [turn.speedup for turn in trajectory.turns]
    assert None not in speedups, said
    assert speedups == sorted(speedups, key=lambda speedup: speedup or 0.0)
