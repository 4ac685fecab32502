"""Language models behind litellm: transient faults retried, tokens and cost counted, a budget kept.

Keys are read by litellm from the environment; kbenv neither stores nor prints them. Which faults are transient is
decided here alone: whatever leaves this module is final. A service that declines to answer (its content filter) is no
fault: the answer is empty and its `finish_reason` says so.
"""

from __future__ import annotations

import email.utils
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import JsonValue
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from kbenv.agents import ANSWER, Completion, Message, Model
from kbenv.agents.sampling import SAMPLED_TEMPERATURE, Sampling, settings_for
from kbenv.errors import ModelError, UsageError
from kbenv.prompts import render

TRANSIENT = (
    "RateLimitError", "Timeout", "APIConnectionError", "ServiceUnavailableError", "InternalServerError",
    "BadGatewayError", "APIResponseValidationError",
)  # fmt: skip
TRANSIENT_STATUSES = (408, 409, 425, 429)
"""And every one from 500 up: litellm has no exception of its own for those of proxies (520 to 529)."""
ATTEMPTS = 6
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 600.0
"""A service that asks for a longer pause is not waited for: the run stops and goes on when it is started again."""
MESSAGE_CHARS = 300
ANSWER_TOKENS = 16_000
"""Room in the context window for an answer whose length is not bounded."""
ANSWER_CHARS = 2_000_000
"""What is longer is cut: nobody's kernel, and the judge takes no source of more than 5 MB."""
KEY_CHARS = 8
"""A shorter value is no key, and may be a word of any message."""
TOOL = "submit_source"
_SECRET_ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_ACCESS_KEY", "_ACCESS_KEY_ID", "_CREDENTIALS")
_KEY_ENDINGS = ("_API_KEY", "_TOKEN")


class ContextWindowError(ModelError):
    """The conversation no longer fits the model's context window: this conversation is over, others are not."""


class BudgetSpentError(ModelError):
    """Nothing more is asked under the run's budget."""


class Throttle:
    """At most so many requests at once to each provider; shared by all models of a run. No limit by itself: None."""

    def __init__(self, at_once: int | None = None, providers: Mapping[str, int] | None = None) -> None:
        self._at_once = at_once
        self._providers = dict(providers or {})
        self._slots: dict[str, threading.Semaphore] = {}
        self._lock = threading.Lock()

    def slot(self, provider: str) -> threading.Semaphore:
        """To be held during a request."""
        with self._lock:
            if provider not in self._slots:
                self._slots[provider] = threading.Semaphore(self._providers.get(provider, self._at_once or 1 << 30))
            return self._slots[provider]


class LitellmModel:
    """A model of any provider that litellm knows, by litellm's name for it ("gpt-4o", "anthropic/...", "ollama/...").

    Args:
        name: litellm's model name.
        sampling: how answers are drawn.
        stream: ask for the answer in pieces: some proxies close a connection that is silent while a model reasons.
        tool: let the model hand in its source by a tool call, for models that are better at that than at code blocks.
        throttle: limits the requests at once.
        timeout_s: seconds until one request counts as timed out (and is retried).
        wait: for tests: tenacity's waiting time between attempts.

    Raises:
        UsageError: litellm is not installed, the name is not one of its models, the key is not in the environment, or
            the model does not accept the sampling.
    """

    def __init__(
        self,
        name: str,
        *,
        sampling: Sampling | None = None,
        stream: bool = False,
        tool: bool = False,
        throttle: Throttle | None = None,
        timeout_s: float = 600.0,
        wait: Callable[[RetryCallState], float] | None = None,
        needs_key: bool = True,
    ) -> None:
        self.name = name
        self._litellm = _import_litellm()
        self.provider = _check_environment(self._litellm, name, needs_key=needs_key)
        supported = self._litellm.get_supported_openai_params(model=name)
        self.settings = _accepted(self._litellm, name, settings_for(name, sampling or Sampling(), supported))
        if tool and supported is not None and "tools" not in supported:
            raise UsageError(f"{name} calls no tools: leave out --tool")
        self._tool = tool
        self._stream = stream
        counts = supported is None or "stream_options" in supported
        self._stream_options: dict[str, Any] = {"stream_options": {"include_usage": True}} if counts else {}
        self._timeout_s = timeout_s
        self._slot = (throttle or Throttle()).slot(self.provider)
        self._transient = tuple(getattr(self._litellm, kind) for kind in TRANSIENT)
        self._backoff = wait_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S) + wait_random(0.0, FIRST_WAIT_S)
        self._wait = wait or self._pause_s

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The model's answer; `sample` is not sent (the service draws at random).

        Raises:
            ContextWindowError: the conversation is too long for the model.
            ModelError: any other fault, transient ones after `ATTEMPTS` attempts.
        """
        payload = [{"role": message.role, "content": message.content} for message in messages]
        tools = self._tool and purpose == ANSWER
        retrying = Retrying(
            retry=retry_if_exception(self._may_pass), stop=stop_after_attempt(ATTEMPTS), wait=self._wait, reraise=True
        )
        started = time.monotonic()
        try:
            completion: Completion = retrying(self._complete, payload, tools)
        except self._litellm.ContextWindowExceededError as error:
            raise ContextWindowError(f"{self.name}: the conversation exceeds the context window") from error
        except Exception as error:  # the boundary to litellm, which lets its providers' own exceptions through
            if self._is_filtered(error):
                return Completion(text="", cost_usd=0.0, finish_reason="content_filter", settings=self._recorded(tools))
            raise ModelError(f"{self.name}: {type(error).__name__}: {_one_line(error)}") from error
        return replace(
            completion,
            attempts=int(retrying.statistics["attempt_number"]),
            seconds=round(time.monotonic() - started, 3),
            settings=self._recorded(tools),
        )

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The tokens of a conversation, by litellm (exactly where it has the model's tokenizer)."""
        payload = [{"role": message.role, "content": message.content} for message in messages]
        return int(self._litellm.token_counter(model=self.name, messages=payload))

    def window(self) -> int | None:
        """The most tokens of a conversation, as litellm knows it, with room left for an answer; None: it does not."""
        try:
            known = self._litellm.get_model_info(self.name).get("max_input_tokens")
        except Exception:  # as in `price`
            return None
        answer = self.settings.get("max_tokens", self.settings.get("max_completion_tokens", ANSWER_TOKENS))
        return None if known is None or not isinstance(answer, int) else max(1, int(known) - answer)

    def price(self) -> tuple[float, float] | None:
        """What a token of a prompt and one of an answer cost, in dollars; None where litellm does not know."""
        try:
            info = self._litellm.get_model_info(self.name)
        except Exception:  # litellm raises a bare Exception for a model that is not in its price list
            return None
        prices = info.get("input_cost_per_token"), info.get("output_cost_per_token")
        return None if None in prices else (float(prices[0]), float(prices[1]))

    def _complete(self, payload: list[dict[str, str]], tools: bool) -> Completion:
        options: dict[str, Any] = dict(self.settings)
        if tools:
            options["tools"] = [_tool()]
        if self._stream:
            options |= {"stream": True, **self._stream_options}
        # Retries are tenacity's alone: those of litellm and of the provider's client would multiply them.
        request = {"model": self.name, "messages": payload, "num_retries": 0, "max_retries": 0}
        with self._slot:
            response = self._litellm.completion(**request, timeout=self._timeout_s, **options)
            if self._stream:
                response = self._gather(list(response), payload)
        return self._completion(response)

    def _gather(self, pieces: list[Any], payload: list[dict[str, str]]) -> Any:
        """The whole answer; a stream that ended without a reason to finish was cut, and is asked for again."""
        reasons = [choice.finish_reason for piece in pieces for choice in piece.choices]
        response = self._litellm.stream_chunk_builder(pieces, messages=payload)
        if response is None or not any(reasons):
            raise self._litellm.APIConnectionError(
                message="the stream ended in the middle of the answer", llm_provider=self.provider, model=self.name
            )
        return response

    def _completion(self, response: Any) -> Completion:
        if not getattr(response, "choices", None):
            raise self._litellm.APIConnectionError(
                message="the response holds no answer", llm_provider=self.provider, model=self.name
            )
        choice = response.choices[0]
        usage = getattr(response, "usage", None)
        text, cut = _bounded(_text(choice.message))
        reasoning = getattr(choice.message, "reasoning_content", None)
        return Completion(
            text=text,
            prompt_tokens=getattr(usage, "prompt_tokens", None),
            completion_tokens=getattr(usage, "completion_tokens", None),
            cost_usd=self._cost_usd(response),
            finish_reason="length" if cut else _finish_reason(choice),
            reasoning=_bounded(reasoning)[0] if reasoning else None,
            reasoning_tokens=getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None),
            cached_tokens=getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None),
        )

    def _cost_usd(self, response: Any) -> float | None:
        try:
            return float(self._litellm.completion_cost(response, model=self.name))
        except Exception:  # not in litellm's price list: an unknown cost is None, and a budget refuses it
            return None

    def _recorded(self, tools: bool) -> dict[str, JsonValue]:
        return {**self.settings, "stream": self._stream, "tool": tools, "provider": self.provider}

    def _may_pass(self, error: BaseException) -> bool:
        """Whether another attempt can help."""
        status = getattr(error, "status_code", None)
        passing = isinstance(status, int) and (status >= 500 or status in TRANSIENT_STATUSES)
        if not (passing or isinstance(error, self._transient)) or _is_quota(error) or _lacks_key(error):
            return False
        pause_s = _retry_after_s(error)
        return pause_s is None or pause_s <= LONGEST_RETRY_AFTER_S

    def _is_filtered(self, error: BaseException) -> bool:
        """Whether the service declined the conversation itself; not every provider's words for it are litellm's."""
        return isinstance(error, self._litellm.ContentPolicyViolationError) or any(
            word in f"{error} {getattr(error, 'body', None)}" for word in ("content_filter", "content_policy_violation")
        )

    def _pause_s(self, state: RetryCallState) -> float:
        """Seconds before the next attempt: what the service asks for, and never less than our own growing pause."""
        error = state.outcome.exception() if state.outcome is not None else None
        return max(self._backoff(state), (_retry_after_s(error) if error is not None else None) or 0.0)


@dataclass
class Budget:
    """What a run may spend and has spent; shared by all models and threads of the run. None: no limit.

    Attributes:
        spent_usd: what answers have cost so far, those of earlier runs included; None when an answer had no known cost.
        calls: how many there were, likewise.
    """

    max_cost_usd: float | None = None
    max_calls: int | None = None
    spent_usd: float | None = 0.0
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def begin(self) -> None:
        """Count a call that is about to be made; raises BudgetSpentError when nothing more may be asked."""
        with self._lock:
            if self.max_calls is not None and self.calls >= self.max_calls:
                raise BudgetSpentError(
                    f"the budget is spent: {self.calls} calls of {self.max_calls}; "
                    "raise --max-calls and run the same command again to go on"
                )
            if self.max_cost_usd is not None:
                if self.spent_usd is None:
                    raise BudgetSpentError("an answer came without a known cost, so that --max-cost cannot be kept")
                if self.spent_usd >= self.max_cost_usd:
                    raise BudgetSpentError(
                        f"the budget is spent: ${self.spent_usd:.4f} of ${self.max_cost_usd:.4f}; "
                        "raise --max-cost and run the same command again to go on"
                    )
            self.calls += 1

    def charge(self, cost_usd: float | None) -> None:
        """Add what an answer cost."""
        with self._lock:
            self.spent_usd = None if cost_usd is None or self.spent_usd is None else self.spent_usd + cost_usd

    def forgive(self) -> None:
        """A call that brought no answer does not count."""
        with self._lock:
            self.calls -= 1


class BudgetedModel:
    """Asks `model` while `budget` lasts. Answers in flight may overrun its cost: their price is known afterwards."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self.name = model.name
        self._model = model
        self._budget = budget

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The model's answer.

        Raises:
            BudgetSpentError: the budget is spent, or cannot be kept because an answer's cost was not known.
        """
        self._budget.begin()
        try:
            completion = self._model.query(messages, sample=sample, purpose=purpose)
        except BaseException:
            self._budget.forgive()
            raise
        self._budget.charge(completion.cost_usd)
        return completion


def redact(text: str) -> str:
    """`text` without any secret of this process's environment: some services repeat the key that they refuse."""
    for name, value in os.environ.items():
        if name.upper().endswith(_SECRET_ENDINGS) and len(value) >= KEY_CHARS:
            text = text.replace(value, f"[{name}]")
    return text


def _import_litellm() -> ModuleType:
    # litellm fetches a price list from the network when it is imported, unless told to use the one that it came with.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
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


def _check_environment(litellm: ModuleType, name: str, *, needs_key: bool) -> str:
    """The model's provider. Finds out before anything is asked what can be known without asking."""
    try:
        provider = str(litellm.get_llm_provider(name)[1])
    except Exception as error:  # BadRequestError today; whatever it is, the name is not usable
        raise UsageError(
            f"litellm knows no model {name!r}; expected PROVIDER/MODEL such as openai/gpt-4o or ollama/llama3 "
            "(https://docs.litellm.ai/docs/providers), or replay:DIR"
        ) from error
    with _without_blank_keys():
        missing = litellm.validate_environment(name).get("missing_keys") or []
    # Only keys: what else litellm lists (OLLAMA_API_BASE, AWS_REGION_NAME) has defaults or other sources.
    keys = [key for key in missing if key.endswith(_KEY_ENDINGS)]
    if keys and needs_key:
        raise UsageError(f"no key for {name}: set {' or '.join(keys)} in the environment (kbenv stores no keys)")
    return provider


@contextmanager
def _without_blank_keys() -> Iterator[None]:
    """The environment without keys that hold nothing, which litellm counts as being there."""
    blank = {name: value for name, value in os.environ.items() if name.endswith(_KEY_ENDINGS) and not value.strip()}
    for name in blank:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(blank)


def _accepted(litellm: Any, name: str, settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """`settings`, if litellm would send them; without the temperature of the preset `sampled` where it would not.

    Raises:
        UsageError: litellm refuses them for this model.
    """
    model, provider = litellm.get_llm_provider(name)[:2]
    try:
        litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, **settings)
    except litellm.BadRequestError as error:  # UnsupportedParamsError is one
        if settings.get("temperature") == SAMPLED_TEMPERATURE:
            rest = {key: value for key, value in settings.items() if key != "temperature"}
            return _accepted(litellm, name, rest)
        raise UsageError(f"{name} does not accept what was chosen: {_one_line(error)}") from error
    return settings


def _tool() -> dict[str, Any]:
    source = {"type": "string", "description": "Python source that defines ModelNew"}
    return {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": render("tool.j2").strip(),
            "parameters": {"type": "object", "properties": {"source": source}, "required": ["source"]},
        },
    }


def _text(message: Any) -> str:
    """What the model said, and after it the source of each tool call as the code block that an answer would have."""
    parts = [message.content or getattr(message, "refusal", None) or ""]
    for call in getattr(message, "tool_calls", None) or ():
        arguments = call.function.arguments or ""
        try:
            values = json.loads(arguments)
        except ValueError:  # cut off, or no JSON: shown as it came, so that the feedback can say that there is no code
            parts.append(arguments)
            continue
        source = values.get("source") if isinstance(values, dict) else None
        parts.append(f"```python\n{source.rstrip()}\n```" if isinstance(source, str) else arguments)
    return "\n\n".join(part for part in parts if part)


def _finish_reason(choice: Any) -> str | None:
    reason = choice.finish_reason
    if getattr(choice.message, "refusal", None):
        return "refusal"
    return None if reason is None else str(reason)


def _bounded(text: str) -> tuple[str, bool]:
    """`text` without secrets and of at most `ANSWER_CHARS`, and whether it was longer."""
    # A lone surrogate has no UTF-8 form and could be neither stored nor judged.
    clean = redact(text[:ANSWER_CHARS].encode("utf-8", "replace").decode("utf-8"))
    return clean, len(text) > ANSWER_CHARS


def _retry_after_s(error: BaseException) -> float | None:
    """What the service's Retry-After header asks for: seconds, or a date; None without one."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


def _is_quota(error: BaseException) -> bool:
    """An exhausted account arrives as a rate limit; waiting does not refill it."""
    return "insufficient_quota" in f"{error} {getattr(error, 'body', None)}"


def _lacks_key(error: BaseException) -> bool:
    """What the client says of a key that is not there arrives as a fault of the service."""
    return "missing credentials" in str(error).lower()


def _one_line(error: BaseException) -> str:
    """The provider's words on one line, bounded, without secrets that some of them repeat."""
    text = redact(" ".join(str(error).split()))
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 3] + "..."
