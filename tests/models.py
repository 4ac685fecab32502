"""A scripted model: returns the given answers in order, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbenv.agents import Completion, Message

ANSWER = "Here it is.\n\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    number = {number}\n```\n"


def make_answer(number: int = 0) -> str:
    """An answer with code; `number` tells answers apart."""
    return ANSWER.format(number=number)


class ScriptedModel:
    """Returns the given completions, texts or exceptions in order; the last one again and again."""

    name = "scripted"

    def __init__(self, answers: Iterable[str | Completion | BaseException]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Message, ...]] = []
        self.samples: list[int] = []

    def query(self, messages: Sequence[Message], *, sample: int = 0) -> Completion:
        self.asked.append(tuple(messages))
        self.samples.append(sample)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Completion):
            return answer
        return Completion(text=answer, prompt_tokens=10, completion_tokens=5, cost_usd=0.01, finish_reason="stop")
