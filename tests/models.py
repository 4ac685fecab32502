"""Answers with code, for scripted models."""

from __future__ import annotations

from kbenv.agents.scripted import ScriptedModel

__all__ = ["ScriptedModel", "make_answer"]

ANSWER = "Here it is.\n\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    number = {number}\n```\n"


def make_answer(number: int = 0) -> str:
    """An answer with code; `number` tells answers apart."""
    return ANSWER.format(number=number)
