"""What was tried in one attempt and what it did (short-term memory): a move that did not help is not made again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbenv.agents import Turn
from kbenv.feedback import shown_status

LEAST_GAIN = 1.01
"""Times the speedup before; less is no gain that a clock can tell."""


@dataclass(frozen=True)
class Move:
    """One application of a skill and what became of it.

    Attributes:
        skill: its id; None for an idea of the model's own.
        before: the speedup that it started from; None where nothing was right yet.
        after: the speedup it reached; None where its answer, repairs included, was not credited.
        status: of its last answer, as far as it may be told; None where the answer was not judged.
        answers: how many it took.
    """

    skill: str | None
    before: float | None
    after: float | None
    status: str | None
    answers: int = 1

    @property
    def helped(self) -> bool:
        """Whether it is credited and faster than before."""
        return self.after is not None and (self.before is None or self.after >= LEAST_GAIN * self.before)


@dataclass
class Memory:
    """The moves of one attempt, in order."""

    moves: list[Move] = field(default_factory=list)

    def record(self, skill: str | None, base: Turn | None, turns: Sequence[Turn]) -> Move:
        """Adds the move that `turns`, its answer and the repairs of it, made from `base`."""
        last = turns[-1]
        status = None if last.verdict is None else shown_status(last.verdict).value
        move = Move(skill, base.speedup if base is not None else None, last.speedup, status, len(turns))
        self.moves.append(move)
        return move

    @property
    def spent(self) -> frozenset[str]:
        """Skills that are not to be tried again: those whose last move did not help."""
        last = {move.skill: move for move in self.moves if move.skill is not None}
        return frozenset(skill for skill, move in last.items() if not move.helped)


def is_repetition(code: str | None, turns: Sequence[Turn]) -> bool:
    """Whether one of `turns` had the same code, spaces and blank lines apart."""
    if code is None:
        return False
    return any(turn.code is not None and _plain(turn.code) == _plain(code) for turn in turns)


def _plain(code: str) -> str:
    return re.sub(r"\s+", " ", code).strip()
