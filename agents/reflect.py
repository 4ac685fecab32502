"""Division of labour: a writer, a reviewer that reads its failures, an optimiser that works on what is right.

The idea is GEAK's (arXiv 2507.23194): its generator, reflector and optimizer; the prompts and the rules are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, record_turn
from kbenv.agents.context import Context
from kbenv.agents.model import ContextWindowError
from kbenv.agents.stopping import CountedModel, Stop
from kbenv.prompts import render

SHOWN = 3
"""Right answers, and failures since, that the optimiser is shown."""


class Reflect:
    """`n` independent attempts of at most `calls` calls each, those of the reviewer included.

    The writer answers; while its answers fail, the reviewer says why and the writer repairs, `repairs` times before it
    is told to take another approach. As soon as one is credited the optimiser takes over, with the fastest right
    answers before it; what it breaks goes back to reviewer and writer, and after `repairs` failures it starts again
    from the right ones.
    """

    name = "reflect"

    def __init__(
        self,
        model: Model,
        calls: int = 10,
        n: int = 1,
        *,
        repairs: int = 3,
        context: Context | None = None,
        stop: Stop | None = None,
        tokens: int | None = None,
    ) -> None:
        self.model = model
        self.calls = calls
        self.n = n
        self.repairs = repairs
        self.context = context or Context()
        self.stop = stop or Stop()
        self.tokens = tokens
        self.system = render("system.j2", turns=1)

    def run(self, env: TextEnv, problem: str, on_turn: OnTurn | None = None) -> Trajectory:
        """One episode of `env` (single-turn) for each answer."""
        turns: list[Turn] = []
        for sample in range(self.n):
            for turn in self._attempt(env, sample):
                turns.append(turn)
                if on_turn is not None:
                    on_turn(turn)
        return Trajectory(problem=problem, agent=self.name, model=self.model.name, turns=tuple(turns))

    def _attempt(self, env: TextEnv, sample: int) -> Iterator[Turn]:
        observation, _ = env.reset()
        task = [Message("system", self.system), Message("user", observation)]
        model = CountedModel(self.model, self.calls, self.tokens)
        turns: list[Turn] = []
        reflections: list[str] = []  # since the last right answer, or the last change of approach
        while not model.spent and not self.stop.reached(turns):
            try:
                messages = self._next(task, turns, reflections, model, sample)
                if model.spent:  # the last call went to the reviewer
                    return
                completion = model.query(messages, sample=sample)
            except ContextWindowError:
                return
            env.reset()
            turns.append(record_turn(sample, len(turns), messages, completion, env.step(completion.text)))
            yield turns[-1]

    def _next(
        self, task: list[Message], turns: list[Turn], reflections: list[str], model: CountedModel, sample: int
    ) -> list[Message]:
        """The writer's or the optimiser's next conversation; asks the reviewer on the way to a repair."""
        if not turns:
            return task
        right = sorted((turn for turn in turns if turn.speedup is not None), key=lambda turn: turn.speedup or 0.0)
        failures = _failures_at_the_end(turns)
        anew = len(failures) % (self.repairs + 1) == 0
        if not failures or (right and anew):
            reflections.clear()
            return self._optimise(task, right, failures)
        last = failures[-1]
        question = render("reflect.j2", task=task[-1].content, turn=last, earlier=reflections).strip()
        reflection = model.query([Message("user", question)], sample=sample, purpose="reflection").text.strip()
        if reflection:
            reflections.append(reflection)
        if anew:
            reflections.clear()
        messages = self.context.compose(task, [last])
        values = {"reflection": reflection, "anew": anew, "attempts": len(failures)}
        return [*messages[:-1], Message("user", render("repair.j2", feedback=messages[-1].content, **values).strip())]

    def _optimise(self, task: list[Message], right: Sequence[Turn], failures: Sequence[Turn]) -> list[Message]:
        """With as many right answers as fit into the context, the fastest last."""
        for count in range(min(SHOWN, len(right)), 0, -1):
            values = {"turns": right[-count:], "failed": failures[-SHOWN:]}
            messages = [task[0], Message("user", render("optimise.j2", task=task[-1].content, **values).strip())]
            if self.context.max_tokens is None or self.context.count(messages) <= self.context.max_tokens:
                return messages
        raise ContextWindowError("the task and one right answer exceed the context: raise --context-tokens")


def _failures_at_the_end(turns: Sequence[Turn]) -> list[Turn]:
    """The turns since the last credited one."""
    last_right = max((number for number, turn in enumerate(turns) if turn.speedup is not None), default=-1)
    return list(turns[last_right + 1 :])
