"""Between an agent and the disk: a model that asks only for what is not stored, and an evaluator that judges only that.

An agent runs from its start every time; what a store already holds is played back to it, so that it reaches the point
where it was interrupted without a question and without a judgement. An answer is stored before anybody sees it.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Sequence

from pydantic import JsonValue

from kbenv.agents import ANSWER, Completion, Message, Model, Turn
from kbenv.env import Judging
from kbenv.errors import UsageError
from kbenv.problems.problem import Problem
from kbenv.store import Store, StoredCall, StoredMessage, StoredTurn
from kbenv.verdict import Verdict


class RecordedModel:
    """One problem's calls: answers from `store`, and from `model` (then stored) where it has none.

    A call is found by its sample, and by how many of its kind (answers, others) that sample has made before.
    """

    def __init__(self, model: Model, store: Store, problem: str) -> None:
        self.name = model.name
        self._model = model
        self._store = store
        self._problem = problem
        self._made: dict[tuple[int, bool], int] = defaultdict(int)
        self._open: dict[tuple[int, int], StoredTurn] = {}
        self._verdicts: dict[str | None, list[tuple[int, int, Verdict]]] = defaultdict(list)
        self._lock = threading.Lock()

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The stored or the model's answer.

        Raises:
            UsageError: the stored answer was given to another text, or its file is damaged.
            ModelError: from the model.
        """
        is_turn = purpose == ANSWER
        index = self._made[sample, is_turn]
        load = self._store.load if is_turn else self._store.load_call
        call = load(self._problem, sample, index)
        if call is None:
            completion = self._model.query(messages, sample=sample, purpose=purpose)
            call = self._stored(messages, completion, sample, index, purpose)
            self._store.save(call)
        else:
            _check_same(call, messages)
        self._made[sample, is_turn] += 1
        if isinstance(call, StoredTurn):
            with self._lock:
                self._open[sample, index] = call
                if call.judged and call.verdict is not None:
                    heapq.heappush(self._verdicts[call.code], (sample, index, call.verdict))
        return _completion(call)

    def finish(self, turn: Turn) -> bool:
        """Store what became of a turn; for an agent's `on_turn`.

        Returns:
            Whether it is new: False for a turn that was judged before, or that another model answered.
        """
        stored = self._open.pop((turn.sample, turn.index), None)
        if stored is None or stored.judged:
            return False
        update = {
            "judged": True, "code": turn.code, "reward": turn.reward, "verdict": turn.verdict,
            "parents": turn.parents, "feedback": turn.feedback,
        }  # fmt: skip
        self._store.save(stored.model_copy(update=update))
        return True

    def stored_verdict(self, code: str | None) -> Verdict | None:
        """The verdict of the first turn with this code that was answered from the store and not yet looked up."""
        with self._lock:
            return heapq.heappop(self._verdicts[code])[-1] if self._verdicts[code] else None

    def _stored(
        self, messages: Sequence[Message], completion: Completion, sample: int, index: int, purpose: str
    ) -> StoredCall:
        settings: dict[str, JsonValue] = dict(completion.settings)
        return (StoredTurn if purpose == ANSWER else StoredCall)(
            problem=self._problem,
            sample=sample,
            index=index,
            model=self.name,
            purpose=purpose,
            observation=messages[-1].content,
            messages=tuple(StoredMessage(role=message.role, content=message.content) for message in messages),
            answer=completion.text,
            reasoning=completion.reasoning,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            reasoning_tokens=completion.reasoning_tokens,
            cached_tokens=completion.cached_tokens,
            cost_usd=completion.cost_usd,
            finish_reason=completion.finish_reason,
            outcome=completion.outcome,
            attempts=completion.attempts,
            seconds=completion.seconds,
            settings=settings,
        )


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
        return self._model.stored_verdict(source) or self._evaluator.evaluate(problem, source)

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        return self._model.stored_verdict(None) or self._evaluator.format_error(problem, message)


def _check_same(call: StoredCall, messages: Sequence[Message]) -> None:
    """Raises UsageError when the stored answer was given to another conversation."""
    sent = [(message.role, message.content) for message in call.messages]
    now = [(message.role, message.content) for message in messages]
    if (sent or [("user", call.observation)]) != (now if sent else now[-1:]):
        raise UsageError(
            f"the stored {'turn' if isinstance(call, StoredTurn) else 'call'} {call.index} of sample {call.sample} of "
            f"{call.problem} answers another text than would be sent now (the problem, the prompts or kbenv changed): "
            "choose another --out"
        )


def _completion(call: StoredCall) -> Completion:
    return Completion(
        text=call.answer,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        cost_usd=call.cost_usd,
        finish_reason=call.finish_reason,
        reasoning=call.reasoning,
        reasoning_tokens=call.reasoning_tokens,
        cached_tokens=call.cached_tokens,
        attempts=call.attempts,
        seconds=call.seconds,
        settings=call.settings,
    )
