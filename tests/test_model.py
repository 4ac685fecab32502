"""The litellm boundary, with a scripted stand-in for the litellm module."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from kbenv.agents import Completion, Message
from kbenv.agents.model import (
    ATTEMPTS,
    Budget,
    BudgetedModel,
    BudgetSpentError,
    ContextWindowError,
    LitellmModel,
    redact,
)
from kbenv.agents.sampling import Sampling
from kbenv.errors import ModelError, UsageError
from tests.models import ScriptedModel

MESSAGES = [Message("user", "write a kernel")]


class ScriptedLitellm:
    """As much of the litellm module as kbenv uses; `outcomes` are returned or raised by `completion` in order."""

    RateLimitError = type("RateLimitError", (Exception,), {})
    Timeout = type("Timeout", (Exception,), {})
    APIConnectionError = type("APIConnectionError", (Exception,), {})
    ServiceUnavailableError = type("ServiceUnavailableError", (Exception,), {})
    InternalServerError = type("InternalServerError", (Exception,), {})
    AuthenticationError = type("AuthenticationError", (Exception,), {})
    BadRequestError = type("BadRequestError", (Exception,), {})
    ContextWindowExceededError = type("ContextWindowExceededError", (BadRequestError,), {})
    ContentPolicyViolationError = type("ContentPolicyViolationError", (BadRequestError,), {})
    BadGatewayError = type("BadGatewayError", (Exception,), {})
    APIResponseValidationError = type("APIResponseValidationError", (Exception,), {})

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.missing_keys: list[str] = []
        self.unknown: set[str] = set()
        self.price: float | None = 0.25
        self.supported: list[str] | None = None

    def get_llm_provider(self, name: str) -> tuple[str, str]:
        if name in self.unknown:
            raise self.BadRequestError("LLM Provider NOT provided")
        return name, "scripted"

    def validate_environment(self, name: str) -> dict[str, Any]:
        return {"keys_in_environment": not self.missing_keys, "missing_keys": self.missing_keys}

    def get_model_info(self, name: str) -> dict[str, Any]:
        if self.price is None:
            raise Exception("This model isn't mapped yet.")
        return {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}

    def get_supported_openai_params(self, model: str) -> list[str] | None:
        return self.supported

    @property
    def utils(self) -> ScriptedLitellm:
        return self

    def get_optional_params(self, **request: Any) -> dict[str, Any]:
        return request

    def completion(self, **request: Any) -> Any:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def completion_cost(self, response: Any, model: str) -> float:
        if self.price is None:
            raise Exception("This model isn't mapped yet.")
        return self.price


def make_response(text: str | None = "answer", finish_reason: str = "stop") -> Any:
    return SimpleNamespace(
        choices=[SimpleNamespace(message=SimpleNamespace(content=text), finish_reason=finish_reason)],
        usage=SimpleNamespace(prompt_tokens=11, completion_tokens=7),
    )


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> ScriptedLitellm:
    scripted = ScriptedLitellm()
    monkeypatch.setitem(sys.modules, "litellm", scripted)  # type: ignore[arg-type]
    return scripted


def make_model(**options: Any) -> LitellmModel:
    return LitellmModel("openai/some-model", wait=lambda state: 0.0, **options)


def test_a_completion_carries_text_tokens_cost_and_finish_reason(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [make_response("hello", "length")]
    answer = make_model().query(MESSAGES)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("hello", 11, 7)
    assert (answer.cost_usd, answer.finish_reason, answer.outcome) == (0.25, "length", "cut-off")


@pytest.mark.parametrize(
    "kind", ["RateLimitError", "Timeout", "APIConnectionError", "ServiceUnavailableError", "InternalServerError"]
)
def test_transient_faults_are_retried(litellm: ScriptedLitellm, kind: str) -> None:
    fault = getattr(litellm, kind)
    litellm.outcomes = [fault("try later"), fault("try later"), make_response()]
    assert make_model().query(MESSAGES).text == "answer"
    assert len(litellm.requests) == 3


def test_retries_are_bounded_and_end_in_one_line(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [litellm.RateLimitError("slow\ndown")] * 20
    with pytest.raises(ModelError, match="openai/some-model: RateLimitError: slow down"):
        make_model().query(MESSAGES)
    assert len(litellm.requests) == ATTEMPTS


@pytest.mark.parametrize("kind", ["AuthenticationError", "BadRequestError"])
def test_permanent_faults_are_not_retried(litellm: ScriptedLitellm, kind: str) -> None:
    litellm.outcomes = [getattr(litellm, kind)("no"), make_response()]
    with pytest.raises(ModelError) as caught:
        make_model().query(MESSAGES)
    assert len(litellm.requests) == 1
    assert "\n" not in str(caught.value)


def test_an_exhausted_account_is_permanent_although_it_arrives_as_a_rate_limit(litellm: ScriptedLitellm) -> None:
    fault = litellm.RateLimitError("You exceeded your current quota")
    fault.body = {"code": "insufficient_quota"}
    litellm.outcomes = [fault, make_response()]
    with pytest.raises(ModelError, match="current quota"):
        make_model().query(MESSAGES)
    assert len(litellm.requests) == 1


def test_a_key_that_the_provider_repeats_is_not_shown(
    litellm: ScriptedLitellm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-value")
    litellm.outcomes = [litellm.AuthenticationError("Incorrect API key provided: sk-secret-value")]
    with pytest.raises(ModelError, match=r"provided: \[SOME_API_KEY\]"):
        make_model().query(MESSAGES)


def test_a_conversation_that_is_too_long_is_an_error_of_its_own(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [litellm.ContextWindowExceededError("too long")]
    with pytest.raises(ContextWindowError):
        make_model().query(MESSAGES)


def test_options_are_sent_and_defaults_left_to_the_provider(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [make_response(), make_response()]
    make_model().query(MESSAGES)
    make_model(sampling=Sampling(temperature=0.5, max_tokens=99), timeout_s=12.0).query(MESSAGES)
    plain, chosen = litellm.requests
    assert "temperature" not in plain
    assert "max_tokens" not in plain
    assert (chosen["temperature"], chosen["max_tokens"], chosen["timeout"]) == (0.5, 99, 12.0)
    assert chosen["messages"] == [{"role": "user", "content": "write a kernel"}]
    assert (chosen["num_retries"], chosen["max_retries"]) == (0, 0)


def test_an_unknown_cost_is_none(litellm: ScriptedLitellm) -> None:
    litellm.price = None
    litellm.outcomes = [make_response()]
    model = make_model()
    assert model.price() is None
    assert model.query(MESSAGES).cost_usd is None


def test_an_answer_without_text_is_empty_and_one_with_lone_surrogates_can_be_stored(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [make_response(None), make_response("a\ud800b")]
    model = make_model()
    assert model.query(MESSAGES).text == ""
    model.query(MESSAGES).text.encode("utf-8")


def test_a_missing_key_is_named_before_anything_is_asked(litellm: ScriptedLitellm) -> None:
    litellm.missing_keys = ["SOME_API_KEY"]
    with pytest.raises(UsageError, match="SOME_API_KEY"):
        make_model()
    assert litellm.requests == []


@pytest.mark.parametrize("value", ["", "  "])
def test_a_key_that_holds_nothing_is_missing(
    litellm: ScriptedLitellm, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", value)
    monkeypatch.setenv("OTHER_API_KEY", "sk-secret-value")

    def validate_environment(name: str) -> dict[str, Any]:  # as litellm does
        return {"missing_keys": [key for key in ("SOME_API_KEY", "OTHER_API_KEY") if key not in os.environ]}

    monkeypatch.setattr(litellm, "validate_environment", validate_environment)
    with pytest.raises(UsageError, match="set SOME_API_KEY in the environment"):
        make_model()
    assert (os.environ["SOME_API_KEY"], os.environ["OTHER_API_KEY"]) == (value, "sk-secret-value")
    assert make_model(needs_key=False).name == "openai/some-model"


def test_credentials_that_are_missing_are_not_waited_for(litellm: ScriptedLitellm) -> None:
    litellm.outcomes = [litellm.InternalServerError("OpenAIException - Missing credentials. Please pass an `api_key`")]
    with pytest.raises(ModelError, match="Missing credentials"):
        make_model().query(MESSAGES)
    assert len(litellm.requests) == 1


def test_what_is_no_key_may_be_missing(litellm: ScriptedLitellm) -> None:
    litellm.missing_keys = ["OLLAMA_API_BASE"]
    assert make_model().name == "openai/some-model"


def test_an_unknown_model_is_a_usage_error(litellm: ScriptedLitellm) -> None:
    litellm.unknown = {"openai/some-model"}
    with pytest.raises(UsageError, match="PROVIDER/MODEL"):
        make_model()


def test_without_litellm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(UsageError, match=r"kbenv\[llm\]"):
        make_model()


def test_a_budget_stops_asking_once_it_is_spent() -> None:
    inner = ScriptedModel(["a"])
    model = BudgetedModel(inner, Budget(max_cost_usd=0.02))
    model.query(MESSAGES)
    model.query(MESSAGES)
    with pytest.raises(BudgetSpentError, match="--max-cost"):
        model.query(MESSAGES)
    assert len(inner.asked) == 2


def test_a_budget_counts_what_earlier_runs_spent() -> None:
    inner = ScriptedModel(["a"])
    with pytest.raises(BudgetSpentError):
        BudgetedModel(inner, Budget(max_cost_usd=0.02, spent_usd=0.02)).query(MESSAGES)
    assert inner.asked == []


def test_a_budget_cannot_be_kept_over_answers_of_unknown_cost() -> None:
    inner = ScriptedModel([Completion("a")])
    model = BudgetedModel(inner, Budget(max_cost_usd=1.0))
    model.query(MESSAGES)
    with pytest.raises(BudgetSpentError, match="known cost"):
        model.query(MESSAGES)


def test_one_budget_is_shared_by_all_models_of_a_run() -> None:
    budget = Budget(max_cost_usd=0.01)
    BudgetedModel(ScriptedModel(["a"]), budget).query(MESSAGES)
    with pytest.raises(BudgetSpentError):
        BudgetedModel(ScriptedModel(["a"]), budget).query(MESSAGES)


def test_a_budget_of_calls_is_exact_whatever_the_threads() -> None:
    inner, budget = ScriptedModel(["a"]), Budget(max_calls=5)
    model = BudgetedModel(inner, budget)

    def ask() -> int:
        try:
            model.query(MESSAGES)
        except BudgetSpentError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: ask(), range(40))) == 5
    assert len(inner.asked) == 5


def test_a_call_that_brought_no_answer_does_not_count() -> None:
    budget = Budget(max_calls=1)
    model = BudgetedModel(ScriptedModel([ModelError("gone"), "a"]), budget)
    with pytest.raises(ModelError, match="gone"):
        model.query(MESSAGES)
    assert model.query(MESSAGES).text == "a"
    with pytest.raises(BudgetSpentError, match=r"1 calls of 1.*--max-calls"):
        model.query(MESSAGES)


@pytest.mark.parametrize(
    "name", ["SOME_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "CLIENT_SECRET"]
)
def test_no_secret_of_the_environment_is_left_in_a_text(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "very-secret-value")
    assert redact("see very-secret-value!") == f"see [{name}]!"


def test_the_real_litellm_has_what_kbenv_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network for prices
    litellm = pytest.importorskip("litellm")
    for name in (*vars(ScriptedLitellm), "get_llm_provider", "validate_environment", "get_model_info"):
        if not name.startswith("_"):
            assert hasattr(litellm, name), name
    with pytest.raises(UsageError, match="PROVIDER/MODEL"):
        LitellmModel("no-such-model-anywhere")
