"""What is sent to which model, and what is refused before it is sent."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kbenv.agents.sampling import PRESETS, SAMPLED_TEMPERATURE, TABLE, Sampling, accepted_by, get_sampling, settings_for
from kbenv.errors import UsageError

ALL = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "reasoning_effort", "tools")


@pytest.mark.parametrize(
    ("model", "sampling", "sent"),
    [
        ("openai/gpt-4o", Sampling(), {}),
        ("openai/gpt-4o", Sampling(0.5, 0.9, 100), {"temperature": 0.5, "top_p": 0.9, "max_tokens": 100}),
        ("openai/gpt-4o", PRESETS["greedy"], {"temperature": 0.0}),
        ("openai/gpt-4o", PRESETS["sampled"], {"temperature": SAMPLED_TEMPERATURE}),
        ("openai/gpt-5", PRESETS["sampled"], {}),
        ("openai/gpt-5", Sampling(reasoning_effort="high"), {"reasoning_effort": "high"}),
        ("openai/gpt-5.2", Sampling(0.5, reasoning_effort="none"), {"temperature": 0.5, "reasoning_effort": "none"}),
        ("openai/gpt-5.5", Sampling(reasoning_effort="xhigh"), {"reasoning_effort": "xhigh"}),
        ("azure/my-o3-mini", Sampling(reasoning_effort="low"), {"reasoning_effort": "low"}),
        ("anthropic/claude-sonnet-4", Sampling(temperature=1.0), {"temperature": 1.0}),
        ("anthropic/claude-sonnet-4", Sampling(reasoning_effort="low"), {"reasoning_effort": "low"}),
        ("deepseek/deepseek-reasoner", Sampling(max_tokens=9), {"max_tokens": 9}),
        (
            "ollama/some-new-model",
            Sampling(0.3, reasoning_effort="low"),
            {"temperature": 0.3, "reasoning_effort": "low"},
        ),
    ],
)
def test_what_a_model_accepts_is_sent(model: str, sampling: Sampling, sent: dict[str, Any]) -> None:
    assert settings_for(model, sampling, ALL) == sent


@pytest.mark.parametrize(
    ("model", "sampling", "expected"),
    [
        ("openai/gpt-5", Sampling(temperature=0.5), "takes no temperature at all"),
        ("openai/gpt-5-mini", PRESETS["greedy"], "takes no temperature at all"),
        ("openai/o3", Sampling(top_p=0.5), "takes no top_p"),
        ("openai/gpt-5.1", Sampling(0.5, reasoning_effort="high"), "no temperature with a reasoning effort"),
        ("openai/gpt-5.5", Sampling(temperature=0.5), "takes no temperature at all"),
        ("openai/gpt-5", Sampling(reasoning_effort="none"), "choose one of minimal, low, medium, high"),
        ("gemini/gemini-2.5-pro", Sampling(reasoning_effort="disable"), "choose one of minimal"),
        ("openai/gpt-4o", Sampling(temperature=2.5), "from 0 to 2; found 2.5"),
        ("anthropic/claude-sonnet-4", Sampling(temperature=1.5), "from 0 to 1; found 1.5"),
        ("anthropic/claude-sonnet-4", Sampling(0.5, reasoning_effort="low"), "no temperature with a reasoning effort"),
        ("openai/gpt-4.1", Sampling(reasoning_effort="enormous"), "'enormous': choose one of none, minimal"),
        ("xai/grok-3-mini", Sampling(reasoning_effort="medium"), "choose one of low, high"),
        ("openai/gpt-5-chat", Sampling(reasoning_effort="low"), "leave out --reasoning-effort"),
    ],
)
def test_what_a_model_does_not_accept_is_refused(model: str, sampling: Sampling, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        settings_for(model, sampling, ALL)


def test_what_litellm_says_the_provider_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no temperature"):
        settings_for("ollama/x", Sampling(temperature=0.5), ("max_tokens",))
    with pytest.raises(UsageError, match="leave out --reasoning-effort"):
        settings_for("ollama/x", Sampling(reasoning_effort="low"), ("max_tokens",))


def test_a_limit_of_tokens_goes_by_the_name_that_the_provider_knows() -> None:
    assert settings_for("openai/o3", Sampling(max_tokens=9), ("max_completion_tokens",)) == {"max_completion_tokens": 9}
    assert settings_for("openai/o3", Sampling(max_tokens=9), None) == {"max_tokens": 9}


def test_what_is_chosen_by_itself_goes_before_the_preset() -> None:
    assert get_sampling("greedy", temperature=0.7, max_tokens=None) == Sampling(temperature=0.7)
    with pytest.raises(UsageError, match="default, greedy, sampled"):
        get_sampling("wild")


def test_only_the_models_own_name_is_looked_up() -> None:
    assert accepted_by("gpt-5-gateway/llama-3") is None
    row = accepted_by("azure/deployments/GPT-5-mini")
    assert row is not None
    assert row.temperature is None


def test_no_row_of_the_table_is_hidden_by_one_before_it() -> None:
    for number, row in enumerate(TABLE):
        name = row.pattern.replace("*", "").replace("[1-4]", "1").removesuffix(".") + ".9" * row.pattern.endswith(".*")
        assert accepted_by(name) is TABLE[number], row.pattern


def test_the_table_and_litellm_agree_on_models_of_today() -> None:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    for model, sampling in (
        ("openai/gpt-4o", Sampling(0.5, 0.9, 9)),
        ("openai/gpt-5", Sampling(None, None, 9, "low")),
        ("openai/o3", Sampling(None, None, 9, "high")),
        ("anthropic/claude-sonnet-4-20250514", Sampling(None, None, 9, "low")),
        ("gemini/gemini-2.5-pro", Sampling(0.5, 0.9, 9, "low")),
        ("deepseek/deepseek-chat", Sampling(0.5, 0.9, 9)),
    ):
        assert len(settings_for(model, sampling, litellm.get_supported_openai_params(model=model))) >= 2, model


@pytest.mark.parametrize(
    ("model", "sampling", "sent"),
    [
        ("openai/gpt-5.1", PRESETS["greedy"], {"temperature": 0.0}),
        ("openai/gpt-5.2-codex", PRESETS["sampled"], {}),
        ("anthropic/claude-opus-4-7", PRESETS["sampled"], {}),
        ("anthropic/claude-opus-4-7", Sampling(reasoning_effort="xhigh"), {"reasoning_effort": "xhigh"}),
        ("anthropic/claude-opus-4-7", PRESETS["greedy"], "temperature=0.0"),
        ("openai/gpt-5.1", Sampling(reasoning_effort="xhigh"), "reasoning_effort=xhigh is not supported"),
    ],
)
def test_what_litellm_itself_would_refuse_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, model: str, sampling: Sampling, sent: dict[str, Any] | str
) -> None:
    pytest.importorskip("litellm")
    from kbenv.agents.model import LitellmModel

    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    if isinstance(sent, dict):
        assert LitellmModel(model, sampling=sampling).settings == sent
        return
    with pytest.raises(UsageError, match=sent):
        LitellmModel(model, sampling=sampling)
