"""The skills agent's policy: a first right answer, then one skill after the other, each repaired a few times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbenv.agents import Message, Model, OnTurn, TextEnv, Trajectory, Turn, fastest, record_turn
from kbenv.agents.model import ContextWindowError
from kbenv.agents.skills.library import MOST_SKILLS, Skill, load_library, retrieve
from kbenv.agents.skills.memory import Memory, is_repetition
from kbenv.agents.skills.role import diagnose, extract, plan, repair, write
from kbenv.agents.stopping import CountedModel, Stop
from kbenv.prompts import render


class Skills:
    """`n` independent attempts of at most `calls` calls each, those of planner and diagnoser included.

    The writer answers the task; what fails is diagnosed and repaired, `repairs` times. From the fastest right answer
    on, features choose skills of the library, the planner one of them, and the writer applies it; where none applies,
    it follows an idea of its own. A skill that did not help is not tried again.

    Raises:
        UsageError: the library cannot be read (PyYAML is the extra `skills`).
    """

    name = "skills"
    episode = "single"

    def __init__(
        self, model: Model, calls: int = 10, n: int = 1, *, repairs: int = 2, most_skills: int = MOST_SKILLS,
        stop: Stop | None = None, tokens: int | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.calls = calls
        self.n = n
        self.repairs = repairs
        self.most_skills = most_skills
        self.stop = stop or Stop()
        self.tokens = tokens
        self.system = render("system.j2", turns=1)
        load_library()

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
        attempt = _Attempt(self, env, sample, [Message("system", self.system), Message("user", observation)])
        try:
            while not attempt.over:
                yield from attempt.move()
        except ContextWindowError:
            return


class _Attempt:
    """One attempt: its turns so far, its memory, and its share of calls."""

    def __init__(self, agent: Skills, env: TextEnv, sample: int, task: list[Message]) -> None:
        self._agent = agent
        self._env = env
        self._sample = sample
        self._task = task
        self._model = CountedModel(agent.model, agent.calls, agent.tokens)
        self._turns: list[Turn] = []
        self._memory = Memory()

    @property
    def over(self) -> bool:
        return self._model.spent or self._agent.stop.reached(self._turns)

    def move(self) -> Iterator[Turn]:
        """One skill (or the first answer, or an idea of the model's own) and the repairs that it takes."""
        base = fastest(self._turns)
        skill, messages = self._next(base)
        if self._model.spent:  # the last call went to the planner
            return
        made: list[Turn] = []
        diagnoses: list[str] = []
        while True:
            turn = self._answer(messages)
            made.append(turn)
            yield turn
            repeated = is_repetition(turn.code, self._turns[:-1])
            if turn.speedup is not None or repeated or len(made) > self._agent.repairs or self.over:
                break
            diagnoses.append(diagnose(self._model, self._task, turn, diagnoses, self._sample))
            if self._model.spent:
                break
            messages = repair(self._task, turn, diagnoses[-1], skill, base)
        self._memory.record(skill.id if skill is not None else None, base, made)

    def _next(self, base: Turn | None) -> tuple[Skill | None, Sequence[Message]]:
        """The skill to apply, if any, and the writer's conversation."""
        if base is None:
            return None, self._task
        features = extract(self._task[-1].content, base)
        found = retrieve(features, without=self._memory.spent, most=self._agent.most_skills)
        skill = plan(self._model, found, features, base, self._memory, self._sample)
        return skill, write(self._task, base, skill, features, self._memory)

    def _answer(self, messages: Sequence[Message]) -> Turn:
        completion = self._model.query(messages, sample=self._sample)
        self._env.reset()
        step = self._env.step(completion.text)
        self._turns.append(record_turn(self._sample, len(self._turns), messages, completion, step))
        return self._turns[-1]
