"""Agents: what turns a problem's prompt into answers, one at a time, until an environment is done with them.

Two small protocols meet here: a `Model` answers a conversation (`kbenv.agents.model`, `kbenv.agents.replay`), an
`Agent` holds the conversation with one environment (`kbenv.agents.single_shot`, `kbenv.agents.multi_turn`). Neither
knows of files: `kbenv.store` records them from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium

from kbenv.extraction import extract_code, says_done
from kbenv.verdict import Verdict


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Completion:
    """A model's answer. What the service did not report is None."""

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None


class Model(Protocol):
    """Answers a conversation.

    `name` is what the run records. `sample` tells independent answers to equal messages apart; a service that draws
    at random has no use for it, recorded answers are chosen by it.
    """

    @property
    def name(self) -> str: ...

    def query(self, messages: Sequence[Message], *, sample: int = 0) -> Completion:
        """The next assistant message.

        Raises:
            ModelError: the service failed for good, or the budget is spent.
        """


@dataclass(frozen=True)
class Turn:
    """One answer and what became of it.

    Attributes:
        sample: which of the agent's independent conversations about the problem it belongs to.
        index: its place in that conversation, from 0.
        observation: the text that was answered.
        code: the source found in the answer; None when there was none.
        verdict: None when the answer was not judged (the agent said that it was done and sent no code).
        reward: the environment's.
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
        credited = [turn for turn in self.turns if turn.speedup is not None]
        return max(credited, key=lambda turn: turn.speedup or 0.0, default=None)


TextEnv = gymnasium.Env[str, str]
OnTurn = Callable[[Turn], None]


class Agent(Protocol):
    """Plays one environment to its end; `on_turn` is called after every judged turn, before the next is asked."""

    @property
    def name(self) -> str: ...

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """The trajectory.

        Raises:
            ModelError: from the model; turns seen by `on_turn` until then stand.
            SandboxError: from the environment; likewise.
        """


def record_turn(
    sample: int, index: int, observation: str, completion: Completion, reward: float, info: dict[str, Any]
) -> Turn:
    """The turn that `completion` in reply to `observation` became, from the reward and info of `env.step`."""
    code = extract_code(completion.text)
    # A farewell is not judged: `info` then still holds the verdict of the turn before.
    farewell = index > 0 and code is None and says_done(completion.text)
    return Turn(
        sample=sample,
        index=index,
        observation=observation,
        answer=completion.text,
        code=code,
        verdict=None if farewell else info["verdict"],
        reward=float(reward),
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        cost_usd=completion.cost_usd,
        finish_reason=completion.finish_reason,
    )
