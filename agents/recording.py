"""Between an agent and the disk: a model that asks only for what is not stored, and an evaluator that judges only that.

An agent runs from its start every time; what a store already holds is played back to it, so that it reaches the point
where it was interrupted without a question and without a judgement. An answer is stored before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbenv.agents import Completion, Message, Model, Turn
from kbenv.env import Judging
from kbenv.errors import UsageError
from kbenv.problems.problem import Problem
from kbenv.store import Store, StoredTurn
from kbenv.verdict import Verdict


class RecordedModel:
    """One problem's turns: answers from `store`, and from `model` (then stored) where it has none."""

    def __init__(self, model: Model, store: Store, problem: str) -> None:
        self.name = model.name
        self._model = model
        self._store = store
        self._problem = problem
        self.turn: StoredTurn | None = None
        """The turn last answered."""

    def query(self, messages: Sequence[Message], *, sample: int = 0) -> Completion:
        """The stored or the model's answer; its turn is found by the answers before it.

        Raises:
            UsageError: the stored answer was given to another text, or its file is damaged.
            ModelError: from the model.
        """
        index = sum(message.role == "assistant" for message in messages)
        observation = messages[-1].content
        turn = self._store.load(self._problem, sample, index)
        if turn is None:
            turn = _answered(
                self._problem, sample, index, self.name, observation, self._model.query(messages, sample=sample)
            )
            self._store.save(turn)
        elif turn.observation != observation:
            raise UsageError(
                f"the stored turn {index} of sample {sample} of {self._problem} answers another text than would be "
                "sent now (the problem, the prompts or kbenv changed): choose another --out"
            )
        self.turn = turn
        return Completion(
            text=turn.answer,
            prompt_tokens=turn.prompt_tokens,
            completion_tokens=turn.completion_tokens,
            cost_usd=turn.cost_usd,
            finish_reason=turn.finish_reason,
        )

    def finish(self, turn: Turn) -> bool:
        """Store what became of the turn last answered; for an agent's `on_turn`.

        Returns:
            Whether it is new: False for a turn that was judged before.
        """
        if self.turn is None or self.turn.judged:
            return False
        update = {"judged": True, "code": turn.code, "reward": turn.reward, "verdict": turn.verdict}
        self.turn = self.turn.model_copy(update=update)
        self._store.save(self.turn)
        return True


class RecordedEvaluator:
    """`evaluator`, except that the stored verdict answers for a turn that was judged before.

    It does what an environment asks of an evaluator, and owns nothing: whoever made `evaluator` closes it.
    """

    def __init__(self, evaluator: Judging, model: RecordedModel) -> None:
        self.protocol = evaluator.protocol
        self.device = evaluator.device
        self.backend = evaluator.backend
        self._evaluator = evaluator
        self._model = model

    def close(self) -> None:
        """Nothing: see above."""

    def evaluate(self, problem: Problem | str, source: str) -> Verdict:
        return self._stored_verdict() or self._evaluator.evaluate(problem, source)

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        return self._stored_verdict() or self._evaluator.format_error(problem, message)

    def _stored_verdict(self) -> Verdict | None:
        return self._model.turn.verdict if self._model.turn is not None else None


def _answered(
    problem: str, sample: int, index: int, model: str, observation: str, completion: Completion
) -> StoredTurn:
    return StoredTurn(
        problem=problem,
        sample=sample,
        index=index,
        model=model,
        observation=observation,
        answer=completion.text,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        cost_usd=completion.cost_usd,
        finish_reason=completion.finish_reason,
    )
