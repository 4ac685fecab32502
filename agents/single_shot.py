"""Best of n: n independent answers to the same prompt, none of which sees what became of the others."""

from __future__ import annotations

from functools import partial

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.agents.parallel import in_order
from kbenv.prompts import render


class SingleShot:
    """Asks `model` for `n` independent answers; `Trajectory.best` is the fastest credited one.

    Args:
        at_once: how many are asked for at the same time. They are judged in the order of their samples.
    """

    name = "single-shot"

    def __init__(self, model: Model, n: int = 5, at_once: int = 1) -> None:
        self.model = model
        self.n = n
        self.at_once = at_once
        self.system = render("system.j2", turns=1)

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """One episode of `env` (single-turn) for each sample."""
        turns: list[Turn] = []
        observation, _ = env.reset()
        messages = [Message("system", self.system), Message("user", observation)]
        tasks = [partial(self.model.query, messages, sample=sample) for sample in range(self.n)]
        for sample, completion in enumerate(in_order(tasks, self.at_once)):
            env.reset()
            turn = record_turn(sample, 0, messages, completion, env.step(completion.text))
            turns.append(turn)
            if on_turn is not None:
                on_turn(turn)
        return Trajectory(problem=problem, agent=self.name, model=self.model.name, turns=tuple(turns))
