"""A scripted model, for tests of agents: it returns what it was given, in order, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from kbenv.agents import ANSWER, Completion, Message

Reply = str | Completion | BaseException | Callable[[Sequence[Message]], str]


class ScriptedModel:
    """Returns the given completions or texts, raises the given exceptions, in order; the last one again and again.

    A function is called with the conversation, and answers by what it reads there. `asked`, `samples` and `purposes`
    list what each call was.
    """

    name = "scripted"

    def __init__(self, replies: Iterable[Reply]) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[Message, ...]] = []
        self.samples: list[int] = []
        self.purposes: list[str] = []
        self._lock = threading.Lock()

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The next reply."""
        with self._lock:
            self.asked.append(tuple(messages))
            self.samples.append(sample)
            self.purposes.append(purpose)
            reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Completion):
            return reply
        text = reply if isinstance(reply, str) else reply(messages)
        return Completion(text=text, prompt_tokens=10, completion_tokens=5, cost_usd=0.01, finish_reason="stop")
