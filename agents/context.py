"""What of a conversation's past is sent with the next question: four policies, each within a budget of tokens.

Nothing here asks a model: a policy that needs a summary says what is to be summarised, and is told the summary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kbenv.agents import Message, Turn, fastest
from kbenv.agents.model import ContextWindowError
from kbenv.prompts import render

Policy = Literal["full", "last", "best-last", "summary"]
POLICIES: tuple[Policy, ...] = ("full", "last", "best-last", "summary")
CHARACTERS_A_TOKEN = 3.5
"""Of source code, roughly; for models whose tokens nobody counts."""

TokenCounter = Callable[[Sequence[Message]], int]


def estimate_tokens(messages: Sequence[Message]) -> int:
    """About how many tokens `messages` have, where there is no tokenizer to ask (recorded and scripted models)."""
    return sum(4 + round(len(message.content) / CHARACTERS_A_TOKEN) for message in messages)


@dataclass(frozen=True)
class Context:
    """A policy and its budget.

    Attributes:
        policy: "full": every earlier answer with its feedback; "last": the last `k`; "best-last": those and the fastest
            credited one; "summary": the last `k` to `2k`, the fastest credited one, and a summary by the model of those
            before.
        max_tokens: whatever the policy says, the oldest are left out (the best one last) until the conversation has at
            most so many tokens; where that is not enough, of the last answer only the code is sent. None: no limit.
        count: how tokens are counted; for a service's model `LitellmModel.count_tokens`.
    """

    policy: Policy = "full"
    k: int = 3
    max_tokens: int | None = None
    count: TokenCounter = estimate_tokens

    def to_summarise(self, turns: Sequence[Turn], summarised: int) -> Sequence[Turn]:
        """Of `turns`, of which the first `summarised` are in a summary already, those that now go into it."""
        if self.policy != "summary" or len(turns) - summarised <= 2 * self.k:
            return ()
        return turns[summarised : len(turns) - self.k]

    def compose(
        self, task: Sequence[Message], turns: Sequence[Turn], summary: str | None = None, summarised: int = 0
    ) -> list[Message]:
        """The conversation to send: `task`, what the policy keeps of `turns`, each answer with its feedback.

        Args:
            task: a system message and the problem's prompt.
            turns: earlier turns with feedback, in order.
            summary: of the first `summarised` turns.

        Raises:
            ContextWindowError: it does not fit into `max_tokens` however much is left out.
        """
        best = _best(turns)
        kept = self._kept(turns, best, summarised)
        while True:
            messages = _conversation(task, turns, kept, summary if self.policy == "summary" else None)
            if self._fits(messages):
                return messages
            if len(kept) <= 1:
                break
            oldest = kept[0] if kept[0] != best or len(kept) == 2 else kept[1]
            kept = [number for number in kept if number != oldest]
        shorter = [_code_alone(turn) for turn in turns]
        messages = _conversation(task, shorter, kept, None)
        if self._fits(messages):
            return messages
        raise ContextWindowError(
            f"the task and the last answer have {self.count(messages)} tokens, and the context may have "
            f"{self.max_tokens}: raise --context-tokens"
        )

    def _kept(self, turns: Sequence[Turn], best: int | None, summarised: int) -> list[int]:
        last = range(len(turns))
        if self.policy in ("last", "best-last"):
            last = last[-self.k :]
        elif self.policy == "summary":
            last = last[summarised:]
        if self.policy in ("best-last", "summary") and best is not None and best not in last:
            return [best, *last]
        return list(last)

    def _fits(self, messages: Sequence[Message]) -> bool:
        return self.max_tokens is None or self.count(messages) <= self.max_tokens


def _best(turns: Sequence[Turn]) -> int | None:
    best = fastest(turns)
    return None if best is None else next(number for number, turn in enumerate(turns) if turn is best)


def _conversation(
    task: Sequence[Message], turns: Sequence[Turn], kept: Sequence[int], summary: str | None
) -> list[Message]:
    """The task and the kept exchanges; where turns are left out, the user's message before the gap says so."""
    messages = list(task)
    before = -1
    for number in [*kept, len(turns)]:
        left_out = number - before - 1
        if left_out:
            values = {"first": before + 2, "last": number, "summary": summary}
            content = render("left_out.j2", said=messages[-1].content, **values).strip()
            messages[-1] = replace(messages[-1], content=content)
            summary = None  # it is of all that is left out, and said once
        if number < len(turns):
            turn = turns[number]
            # An empty answer is no message to most services.
            answer = turn.answer if turn.answer.strip() else "(no answer)"
            messages += [Message("assistant", answer), Message("user", _feedback(turn))]
        before = number
    return messages


def _feedback(turn: Turn) -> str:
    return turn.feedback or render("go_on.j2").strip()


def _code_alone(turn: Turn) -> Turn:
    return turn if turn.code is None else replace(turn, answer=f"```python\n{turn.code}```")
