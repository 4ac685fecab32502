"""Agents: what turns a problem's prompt into answers until a budget, a rule or the environment ends it.

Two small protocols meet here: a `Model` answers a conversation (`kbenv.agents.model`, `kbenv.agents.replay`,
`kbenv.agents.scripted`), an `Agent` asks it and plays its answers in one environment (`kbenv.agents.catalog` names
them). Neither knows of files: `kbenv.store` records them from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import gymnasium
from pydantic import JsonValue

from kbenv.extraction import extract_code
from kbenv.verdict import Verdict

ANSWER = "answer"
"""The purpose of a call whose completion is played in the environment; any other is read by the agent alone."""

Outcome = Literal["answered", "cut-off", "empty", "refused", "filtered"]
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m sorry|i am sorry|sorry|i can(?:no|['’])t|i can not|i(?:['’]?m| am) (?:not able|unable)"
    r"|i won['’]t|i must decline|as an ai)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Completion:
    """A model's answer. What the service did not report is None.

    Attributes:
        text: what the model said, without its reasoning where the service tells the two apart.
        finish_reason: the service's: "stop", "length", "content_filter", ...
        reasoning: what the service reported of the model's reasoning; never searched for code.
        reasoning_tokens: those of `completion_tokens` that were reasoning.
        cached_tokens: those of `prompt_tokens` that the service had cached.
        attempts: requests that it took, those that failed included.
        seconds: from the first request to the answer, waiting included.
        settings: what was sent beside the messages. Never a key.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    attempts: int = 1
    seconds: float | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """What kind of answer it is; "refused" is read off its first words, where it holds no code."""
        if self.finish_reason == "content_filter":
            return "filtered"
        if self.finish_reason == "length":
            return "cut-off"
        if not self.text.strip():
            return "empty"
        if self.finish_reason == "refusal" or (_REFUSAL.match(self.text) and extract_code(self.text) is None):
            return "refused"
        return "answered"


class Model(Protocol):
    """Answers a conversation.

    `name` is what the run records. `sample` tells independent answers to equal messages apart; a service that draws
    at random has no use for it, recorded answers are chosen by it. An agent asks one thing at a time within a sample,
    and may ask several samples at once, from several threads.
    """

    @property
    def name(self) -> str: ...

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The next assistant message.

        Args:
            messages: the conversation, ending with a user's message.
            sample: see above.
            purpose: `ANSWER`, or what the agent itself wants to read ("summary", "reflection").

        Raises:
            ModelError: the service failed for good, or the budget is spent.
        """


@dataclass(frozen=True)
class Turn:
    """One answer and what became of it.

    Attributes:
        sample: which of the agent's independent conversations (for a search: which candidate) it belongs to.
        index: its place in that conversation, from 0.
        observation: the text that was answered: the last of `messages`.
        code: the source found in the answer; None when there was none.
        verdict: None when the answer was not judged (the agent said that it was done and sent no code).
        reward: the environment's.
        messages: the whole conversation that was answered, as it was sent.
        outcome: what kind of answer it is, see `Completion`.
        parents: of a search, the samples of the answers that it was made from.
        feedback: the environment's text on it; None where the environment had none to give.
    """

    sample: int
    index: int
    observation: str
    answer: str
    code: str | None
    verdict: Verdict | None
    reward: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None
    outcome: Outcome = "answered"
    messages: tuple[Message, ...] = ()
    parents: tuple[int, ...] = ()
    feedback: str | None = None

    @property
    def speedup(self) -> float | None:
        """The speedup of a credited answer, else None."""
        if self.verdict is None or not self.verdict.credited or self.verdict.speedup is None:
            return None
        return self.verdict.speedup.value


@dataclass(frozen=True)
class Trajectory:
    """What an agent did with one problem: all turns of all its samples, in order."""

    problem: str
    agent: str
    model: str
    turns: tuple[Turn, ...]

    @property
    def best(self) -> Turn | None:
        """The fastest credited turn (best of n); None when none is credited."""
        return fastest(self.turns)


TextEnv = gymnasium.Env[str, str]
OnTurn = Callable[[Turn], None]


class Agent(Protocol):
    """Plays one environment; `on_turn` is called after every judged turn, in the order of `Trajectory.turns`."""

    @property
    def name(self) -> str: ...

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """The trajectory.

        Raises:
            ModelError: from the model; turns seen by `on_turn` until then stand.
            SandboxError: from the environment; likewise.
        """


def record_turn(
    sample: int,
    index: int,
    messages: Sequence[Message],
    completion: Completion,
    step: tuple[str, Any, bool, bool, dict[str, Any]],
    parents: Sequence[int] = (),
) -> Turn:
    """The turn that `completion` in reply to `messages` became, from what `env.step(completion.text)` returned."""
    feedback, reward, _, _, info = step
    return Turn(
        sample=sample,
        index=index,
        observation=messages[-1].content,
        answer=completion.text,
        code=extract_code(completion.text),
        # A farewell is not judged: `info` then still holds the verdict of the turn before.
        verdict=info["verdict"] if info["judged"] else None,
        reward=float(reward),
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        cost_usd=completion.cost_usd,
        finish_reason=completion.finish_reason,
        outcome=completion.outcome,
        messages=tuple(messages),
        parents=tuple(parents),
        feedback=feedback or None,
    )


def fastest(turns: Sequence[Turn]) -> Turn | None:
    """The credited turn with the highest speedup, the first of equals; None when none is credited."""
    return max((turn for turn in turns if turn.speedup is not None), key=lambda turn: turn.speedup or 0.0, default=None)
