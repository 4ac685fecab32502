"""When an agent stops before its calls are spent, and how it counts them: the same for every agent.

All of it looks at what the agent itself has: its turns and its calls. What a whole run may spend is
`kbenv.agents.model.Budget`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kbenv.agents import ANSWER, Completion, Message, Model, Turn, fastest


@dataclass(frozen=True)
class Stop:
    """Rules that end a conversation or a search early; None: no such rule.

    Attributes:
        target_speedup: as soon as an answer is credited with this speedup.
        patience: after this many answers in a row that did not improve the best credited one; before anything is
            credited it does not count.
    """

    target_speedup: float | None = None
    patience: int | None = None

    def reached(self, turns: Sequence[Turn]) -> bool:
        """Whether `turns`, those so far, are enough."""
        best = fastest(turns)
        if best is None or best.speedup is None:
            return False
        if self.target_speedup is not None and best.speedup >= self.target_speedup:
            return True
        since = len(turns) - 1 - next(number for number, turn in enumerate(turns) if turn is best)
        return self.patience is not None and since >= self.patience


class CountedModel:
    """Asks `model` and counts: calls of every purpose, and tokens. Agents look at `spent` before they ask.

    Args:
        calls: most calls; None for no limit.
        tokens: no further call once prompts and answers have held this many, as the service counted them; None for no
            limit.
    """

    def __init__(self, model: Model, calls: int | None = None, tokens: int | None = None) -> None:
        self.name = model.name
        self.calls = 0
        self.tokens = 0
        self._model = model
        self._max_calls = calls
        self._max_tokens = tokens
        self._lock = threading.Lock()

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The model's answer."""
        with self._lock:
            self.calls += 1
        completion = self._model.query(messages, sample=sample, purpose=purpose)
        with self._lock:
            self.tokens += (completion.prompt_tokens or 0) + (completion.completion_tokens or 0)
        return completion

    @property
    def spent(self) -> bool:
        """Whether nothing more may be asked."""
        return self.left == 0 or (self._max_tokens is not None and self.tokens >= self._max_tokens)

    @property
    def left(self) -> int | None:
        """Calls that may still be made; None for any number."""
        return None if self._max_calls is None else max(0, self._max_calls - self.calls)
