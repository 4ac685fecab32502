"""Refinement: one conversation in which the model reads what became of each answer and writes the next."""

from __future__ import annotations

from collections.abc import Iterator

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.agents.context import Context
from kbenv.agents.model import ContextWindowError
from kbenv.agents.stopping import CountedModel, Stop
from kbenv.prompts import render


class MultiTurn:
    """Holds `n` independent conversations of at most `turns` answers each.

    What the model reads of each answer is the environment's to say (`MultiTurnEnv`: execution feedback, profile); what
    it is reminded of is `context`'s. A conversation that outgrows the context window ends there, with the turns it had.

    Args:
        turns: most answers of a conversation.
        calls: most calls of the model in a conversation, summaries included; None: as many as that takes.
        tokens: no further call of a conversation once it has used so many, prompts and answers together.
    """

    name = "multi-turn"

    def __init__(
        self,
        model: Model,
        turns: int = 10,
        n: int = 1,
        *,
        context: Context | None = None,
        stop: Stop | None = None,
        calls: int | None = None,
        tokens: int | None = None,
    ) -> None:
        self.model = model
        self.turns = turns
        self.n = n
        self.context = context or Context()
        self.stop = stop or Stop()
        self.calls = calls
        self.tokens = tokens
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
        model = CountedModel(self.model, self.calls, self.tokens)
        memory = _Memory(self.context, model, sample, [Message("system", self.system), Message("user", observation)])
        turns: list[Turn] = []
        while len(turns) < self.turns and not model.spent and not self.stop.reached(turns):
            try:
                messages = memory.recall(turns)
                if model.spent:  # the last call went into a summary
                    return
                completion = model.query(messages, sample=sample)
            except ContextWindowError:
                return
            step = env.step(completion.text)
            turns.append(record_turn(sample, len(turns), messages, completion, step))
            yield turns[-1]
            _, _, terminated, truncated, _ = step
            if terminated or truncated:
                return


class _Memory:
    """What one conversation is reminded of; asks the model for summaries where the policy wants them."""

    def __init__(self, context: Context, model: CountedModel, sample: int, task: list[Message]) -> None:
        self._context = context
        self._model = model
        self._sample = sample
        self._task = task
        self._summary: str | None = None
        self._summarised = 0

    def recall(self, turns: list[Turn]) -> list[Message]:
        """The conversation to send after `turns`."""
        old = self._context.to_summarise(turns, self._summarised)
        if old:
            values = {"task": self._task[-1].content, "summary": self._summary, "first": self._summarised + 1}
            question = [Message("user", render("summary.j2", turns=old, **values).strip())]
            said = self._model.query(question, sample=self._sample, purpose="summary").text.strip()
            self._summary = said or self._summary
            self._summarised += len(old)
        return self._context.compose(self._task, turns, self._summary, self._summarised)
