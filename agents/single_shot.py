"""Best of n: n independent answers to the same prompt, none of which sees what became of the others."""

from __future__ import annotations

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.prompts import render


class SingleShot:
    """Asks `model` for `n` independent answers; `Trajectory.best` is the fastest credited one."""

    name = "single-shot"

    def __init__(self, model: Model, n: int = 5) -> None:
        self.model = model
        self.n = n
        self.system = render("system.j2", turns=1)

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """One episode of `env` (single-turn) for each sample."""
        turns: list[Turn] = []
        for sample in range(self.n):
            observation, _ = env.reset()
            messages = [Message("system", self.system), Message("user", observation)]
            completion = self.model.query(messages, sample=sample)
            _, reward, _, _, info = env.step(completion.text)
            turn = record_turn(sample, 0, observation, completion, float(reward), info)
            turns.append(turn)
            if on_turn is not None:
                on_turn(turn)
        return Trajectory(problem=problem, agent=self.name, model=self.model.name, turns=tuple(turns))
