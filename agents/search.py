"""Search: a population of answers, from which parents are chosen and refined, generation by generation.

Every candidate is one call of the model and one judgement, so that a search, repeated sampling and refinement can be
compared at equal calls.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Literal

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.agents.context import Context
from kbenv.agents.parallel import in_order
from kbenv.agents.stopping import CountedModel, Stop
from kbenv.feedback import shown_status
from kbenv.prompts import render
from kbenv.verdict import Status

Selection = Literal["beam", "evolution"]
SELECTIONS: tuple[Selection, ...] = ("beam", "evolution")
TOURNAMENT = 3
CROSSOVER = 0.5
OTHERS = 5

_PROGRESS = (
    Status.FORMAT_ERROR, Status.TAMPERED, Status.LOAD_ERROR, Status.COMPILE_ERROR, Status.OUT_OF_MEMORY,
    Status.ILLEGAL_ACCESS, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG_SHAPE, Status.WRONG_DTYPE,
    Status.WRONG_VALUE, Status.WRONG_HIDDEN, Status.NO_CUSTOM_KERNEL,
)  # fmt: skip
"""Of answers that are not credited, from the least to the most worth refining."""


class Search:
    """Asks for `parents * children` first answers, then in each generation for `children` of each of `parents`.

    "beam" refines the best of all answers so far; "evolution" draws each parent in a tournament among them, and half of
    its children have two parents. Equal sources count once. Ties go to the older answer; random draws are seeded, so
    that a run can be repeated.

    Args:
        calls: most calls of the model, hence most candidates.
        at_once: how many children of a generation are asked for at the same time.
    """

    name = "search"

    def __init__(
        self,
        model: Model,
        calls: int = 10,
        *,
        selection: Selection = "beam",
        parents: int = 2,
        children: int = 2,
        context: Context | None = None,
        stop: Stop | None = None,
        tokens: int | None = None,
        at_once: int = 1,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.calls = calls
        self.selection = selection
        self.parents = parents
        self.children = children
        self.context = context or Context()
        self.stop = stop or Stop()
        self.tokens = tokens
        self.at_once = at_once
        self.seed = seed
        self.system = render("system.j2", turns=1)

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """One episode of `env` (single-turn) for each candidate; a turn's `sample` is its candidate's number."""
        observation, _ = env.reset()
        task = [Message("system", self.system), Message("user", observation)]
        model = CountedModel(self.model, self.calls, self.tokens)
        draw = random.Random(f"{self.seed} {problem}")
        turns: list[Turn] = []
        while not model.spent and not self.stop.reached(turns):
            families = self._families(turns, draw)[: model.left]
            asked = [self._compose(task, family, turns) for family in families]
            first = len(turns)
            tasks = [partial(model.query, messages, sample=first + i) for i, messages in enumerate(asked)]
            for i, completion in enumerate(in_order(tasks, self.at_once)):
                env.reset()
                parents = [parent.sample for parent in families[i]]
                turns.append(record_turn(first + i, 0, asked[i], completion, env.step(completion.text), parents))
                if on_turn is not None:
                    on_turn(turns[-1])
        return Trajectory(problem=problem, agent=self.name, model=self.model.name, turns=tuple(turns))

    def _families(self, turns: Sequence[Turn], draw: random.Random) -> list[tuple[Turn, ...]]:
        """The parents of each candidate of the next generation; none for those of the first."""
        archive = _ranked(turns)
        if not archive:
            return [()] * (self.parents * self.children)
        if self.selection == "beam":
            return [(parent,) for parent in archive[: self.parents] for _ in range(self.children)]
        families: list[tuple[Turn, ...]] = []
        for _ in range(self.parents * self.children):
            parent, other = _tournament(archive, draw), _tournament(archive, draw)
            both = draw.random() < CROSSOVER and other is not parent
            families.append((other, parent) if both else (parent,))
        return families

    def _compose(self, task: list[Message], family: Sequence[Turn], turns: Sequence[Turn]) -> list[Message]:
        if not family:
            return task
        messages = self.context.compose(task, family)
        others = sorted({turn.speedup for turn in turns if turn.speedup and turn not in family}, reverse=True)
        values = {"parents": len(family), "credited": family[-1].speedup is not None, "others": others[:OTHERS]}
        return [*messages[:-1], Message("user", render("refine.j2", feedback=messages[-1].content, **values).strip())]


def _ranked(turns: Sequence[Turn]) -> list[Turn]:
    """The distinct answers with code, the best first.

    A failure counts by what the agent may read of it: by `shown_status`, in which all hidden checks are one.
    """
    distinct: dict[str, Turn] = {}
    for turn in turns:
        if turn.code is not None and turn.verdict is not None:
            distinct.setdefault(turn.code, turn)
    return sorted(distinct.values(), key=_merit, reverse=True)  # stable: of equals the older one first


def _merit(turn: Turn) -> tuple[float, int]:
    if turn.speedup is not None:
        return turn.speedup, len(_PROGRESS)
    assert turn.verdict is not None
    return 0.0, _PROGRESS.index(shown_status(turn.verdict))


def _tournament(archive: Sequence[Turn], draw: random.Random) -> Turn:
    """The best of a few drawn ones; `archive` has the best first."""
    return archive[min(draw.randrange(len(archive)) for _ in range(TOURNAMENT))]
