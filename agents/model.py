"""Language models behind litellm: transient faults retried, tokens and cost counted, a budget kept.

Keys are read by litellm from the environment; kbenv neither stores nor prints them. Which faults are transient is
decided here alone: whatever leaves this module is final.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from kbenv.agents import Completion, Message, Model
from kbenv.errors import ModelError, UsageError

TRANSIENT = ("RateLimitError", "Timeout", "APIConnectionError", "ServiceUnavailableError", "InternalServerError")
ATTEMPTS = 6
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 60.0
MESSAGE_CHARS = 300
KEY_CHARS = 8
"""A shorter value is no key, and may be a word of any message."""
_KEY_ENDINGS = ("_API_KEY", "_TOKEN")


class ContextWindowError(ModelError):
    """The conversation no longer fits the model's context window: this conversation is over, others are not."""


class BudgetSpentError(ModelError):
    """Nothing more is asked under the run's budget."""


class LitellmModel:
    """A model of any provider that litellm knows, by litellm's name for it ("gpt-4o", "anthropic/...", "ollama/...").

    Args:
        name: litellm's model name.
        temperature: None leaves the provider's default.
        max_tokens: most tokens of one answer; None leaves the provider's default.
        timeout_s: seconds until one request counts as timed out (and is retried).
        wait: for tests: tenacity's waiting time between attempts.

    Raises:
        UsageError: litellm is not installed, the name is not one of its models, or the key is not in the environment.
    """

    def __init__(
        self,
        name: str,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout_s: float = 600.0,
        wait: Callable[[Any], float] | None = None,
    ) -> None:
        self.name = name
        self._litellm = _import_litellm()
        _check_environment(self._litellm, name)
        options = {"temperature": temperature, "max_tokens": max_tokens, "timeout": timeout_s}
        self._options = {key: value for key, value in options.items() if value is not None}
        transient = tuple(getattr(self._litellm, kind) for kind in TRANSIENT)
        self._retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, transient) and not _is_quota(error)),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait or wait_exponential_jitter(initial=FIRST_WAIT_S, max=LONGEST_WAIT_S, jitter=FIRST_WAIT_S),
            reraise=True,
        )

    def query(self, messages: Sequence[Message], *, sample: int = 0) -> Completion:
        """The model's answer; `sample` is not sent (the service draws at random).

        Raises:
            ContextWindowError: the conversation is too long for the model.
            ModelError: any other fault, transient ones after `ATTEMPTS` attempts.
        """
        payload = [{"role": message.role, "content": message.content} for message in messages]
        try:
            response = self._retrying(self._complete, payload)
        except self._litellm.ContextWindowExceededError as error:
            raise ContextWindowError(f"{self.name}: the conversation exceeds the context window") from error
        except Exception as error:  # the boundary to litellm, which lets its providers' own exceptions through
            raise ModelError(f"{self.name}: {type(error).__name__}: {_one_line(error)}") from error
        return self._completion(response)

    def knows_price(self) -> bool:
        """Whether litellm knows what the model's tokens cost."""
        try:
            info = self._litellm.get_model_info(self.name)
        except Exception:  # litellm raises a bare Exception for a model that is not in its price list
            return False
        return info.get("input_cost_per_token") is not None

    def _complete(self, payload: list[dict[str, str]]) -> Any:
        # Retries are tenacity's alone: those of litellm and of the provider's client would multiply them.
        return self._litellm.completion(
            model=self.name, messages=payload, num_retries=0, max_retries=0, **self._options
        )

    def _completion(self, response: Any) -> Completion:
        choice = response.choices[0]
        usage = getattr(response, "usage", None)
        return Completion(
            # A lone surrogate has no UTF-8 form and could be neither stored nor judged.
            text=(choice.message.content or "").encode("utf-8", "replace").decode("utf-8"),
            prompt_tokens=getattr(usage, "prompt_tokens", None),
            completion_tokens=getattr(usage, "completion_tokens", None),
            cost_usd=self._cost_usd(response),
            finish_reason=choice.finish_reason,
        )

    def _cost_usd(self, response: Any) -> float | None:
        try:
            return float(self._litellm.completion_cost(response, model=self.name))
        except Exception:  # not in litellm's price list: an unknown cost is None, and a budget refuses it
            return None


@dataclass
class Budget:
    """What a run may spend and has spent; shared by all models of the run.

    Attributes:
        max_cost_usd: the budget.
        spent_usd: what answers have cost so far, those of earlier runs included; None when an answer had no known cost.
    """

    max_cost_usd: float
    spent_usd: float | None = 0.0

    def check(self) -> None:
        """Raises BudgetSpentError when nothing more may be asked."""
        if self.spent_usd is None:
            raise BudgetSpentError("an answer came without a known cost, so that --max-cost cannot be kept")
        if self.spent_usd >= self.max_cost_usd:
            raise BudgetSpentError(
                f"the budget is spent: ${self.spent_usd:.4f} of ${self.max_cost_usd:.4f}; "
                "raise --max-cost and run the same command again to go on"
            )

    def charge(self, cost_usd: float | None) -> None:
        """Count an answer."""
        self.spent_usd = None if cost_usd is None or self.spent_usd is None else self.spent_usd + cost_usd


class BudgetedModel:
    """Asks `model` while `budget` lasts. The last answer may overrun it: its price is known afterwards."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self.name = model.name
        self._model = model
        self._budget = budget

    def query(self, messages: Sequence[Message], *, sample: int = 0) -> Completion:
        """The model's answer.

        Raises:
            BudgetSpentError: the budget is spent, or cannot be kept because an answer's cost was not known.
        """
        self._budget.check()
        completion = self._model.query(messages, sample=sample)
        self._budget.charge(completion.cost_usd)
        return completion


def _import_litellm() -> ModuleType:
    try:
        litellm: Any = import_module("litellm")  # an extra: type checkers must do without it as well
    except ImportError as error:
        raise UsageError(
            f"asking a language model needs litellm, which cannot be imported ({error}); "
            "pip install 'kbenv[llm]', or replay recorded answers with --model replay:"
        ) from error
    litellm.suppress_debug_info = True  # else it prints advertisements around every fault
    module: ModuleType = litellm
    return module


def _check_environment(litellm: ModuleType, name: str) -> None:
    """Find out before anything is asked what can be known without asking."""
    try:
        litellm.get_llm_provider(name)
    except Exception as error:  # BadRequestError today; whatever it is, the name is not usable
        raise UsageError(
            f"litellm knows no model {name!r}; expected PROVIDER/MODEL such as openai/gpt-4o or ollama/llama3 "
            "(https://docs.litellm.ai/docs/providers), or replay:DIR"
        ) from error
    missing = litellm.validate_environment(name).get("missing_keys") or []
    # Only keys: what else litellm lists (OLLAMA_API_BASE, AWS_REGION_NAME) has defaults or other sources.
    keys = [key for key in missing if key.endswith(_KEY_ENDINGS)]
    if keys:
        raise UsageError(f"no key for {name}: set {' or '.join(keys)} in the environment (kbenv stores no keys)")


def _is_quota(error: BaseException) -> bool:
    """An exhausted account arrives as a rate limit; waiting does not refill it."""
    return "insufficient_quota" in f"{error} {getattr(error, 'body', None)}"


def _one_line(error: BaseException) -> str:
    """The provider's words on one line, bounded, without the key that some of them repeat."""
    text = " ".join(str(error).split())
    for name, value in os.environ.items():
        if name.endswith(_KEY_ENDINGS) and len(value) >= KEY_CHARS:
            text = text.replace(value, f"[{name}]")
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 3] + "..."
