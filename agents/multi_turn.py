"""Refinement: one conversation in which the model reads what became of each answer and writes the next."""

from __future__ import annotations

from collections.abc import Iterator

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.agents.model import ContextWindowError
from kbenv.prompts import render


class MultiTurn:
    """Holds `n` independent conversations of at most `turns` answers each; the environment ends them.

    A conversation that outgrows the model's context window ends there, with the turns it had.
    """

    name = "multi-turn"

    def __init__(self, model: Model, turns: int = 10, n: int = 1) -> None:
        self.model = model
        self.turns = turns
        self.n = n
        self.system = render("system.j2", turns=turns)

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """One episode of `env` (multi-turn, `max_turns` at least `turns`) for each sample."""
        turns: list[Turn] = []
        for sample in range(self.n):
            for turn in self._converse(env, sample):
                turns.append(turn)
                if on_turn is not None:
                    on_turn(turn)
        return Trajectory(problem=problem, agent=self.name, model=self.model.name, turns=tuple(turns))

    def _converse(self, env: TextEnv, sample: int) -> Iterator[Turn]:
        observation, _ = env.reset()
        messages = [Message("system", self.system), Message("user", observation)]
        for index in range(self.turns):
            try:
                completion = self.model.query(messages, sample=sample)
            except ContextWindowError:
                return
            answered, (observation, reward, terminated, truncated, info) = observation, env.step(completion.text)
            yield record_turn(sample, index, answered, completion, float(reward), info)
            if terminated or truncated:
                return
            messages += [Message("assistant", completion.text), Message("user", observation)]
