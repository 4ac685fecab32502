"""The real litellm against a service on loopback that does what services do on bad days."""

from __future__ import annotations

import email.utils
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from kbenv.agents import Message
from kbenv.agents.model import ANSWER_CHARS, ATTEMPTS, ContextWindowError, LitellmModel, Throttle
from kbenv.agents.sampling import Sampling
from kbenv.errors import ModelError, UsageError
from kbenv.extraction import extract_code
from tests.chat_server import (
    KEY,
    Behaviour,
    ChatServer,
    calls_tool,
    completion,
    fails,
    hangs_up,
    says,
    sends,
    stops_streaming,
    waits,
)
from tests.models import make_answer

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network for prices
pytest.importorskip("litellm")

MESSAGES = [Message("system", "be brief"), Message("user", "write a kernel")]
Serve = Callable[..., ChatServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server with the given behaviours, to which litellm's OpenAI provider then talks."""
    with ExitStack() as stack:

        def start(*script: Behaviour) -> ChatServer:
            server = stack.enter_context(ChatServer(script))
            monkeypatch.setenv("OPENAI_API_BASE", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.delenv(name, raising=False)
            return server

        yield start


def make_model(name: str = "openai/gpt-4o-mini", **options: Any) -> LitellmModel:
    return LitellmModel(name, **{"wait": lambda state: 0.0, "timeout_s": 20.0, **options})


def texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


def test_an_answer_carries_text_tokens_cost_and_what_was_sent(serve: Serve) -> None:
    server = serve(says(make_answer()))
    answer = make_model(sampling=Sampling(temperature=0.5, max_tokens=99)).query(MESSAGES)
    assert answer.text == make_answer()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (21, 9, "stop")
    assert answer.cost_usd is not None
    assert 0 < answer.cost_usd < 0.001
    assert (answer.attempts, answer.outcome) == (1, "answered")
    assert answer.settings["temperature"] == 0.5
    (request,) = server.requests
    assert texts(request["messages"]) == ["be brief", "write a kernel"]
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("gpt-4o-mini", 0.5, 99)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "fault",
    [
        fails(429, "slow down"),
        fails(500, "oops"),
        fails(502, "bad gateway"),
        fails(503, "overloaded"),
        fails(408, "took too long"),
        fails(425, "too early"),
        fails(524, "the proxy waited long enough"),
        fails(529, "overloaded"),
        sends(b"<html>upstream died</html>", status=502),
        hangs_up,
        sends(b'{"id": "chatcmpl-1", "choices": ['),
        sends(b""),
        sends(b'{"choices": []}'),
    ],
    ids=["429", "500", "502", "503", "408", "425", "524", "529", "html", "cut", "malformed", "empty", "no-choices"],
)
def test_a_transient_fault_is_asked_again(serve: Serve, fault: Behaviour) -> None:
    server = serve(fault, fault, says("at last"))
    answer = make_model().query(MESSAGES)
    assert (answer.text, answer.attempts) == ("at last", 3)
    assert len(server.requests) == 3


def test_a_service_that_never_recovers_is_asked_so_often_and_no_more(serve: Serve) -> None:
    server = serve(fails(500, "oops"))
    with pytest.raises(ModelError, match="InternalServerError"):
        make_model().query(MESSAGES)
    assert len(server.requests) == ATTEMPTS


def test_retry_after_is_waited_for(serve: Serve) -> None:
    server = serve(fails(429, "slow down", {"Retry-After": "1"}), says("ok"))
    model = LitellmModel("openai/gpt-4o-mini", timeout_s=20.0)
    model._backoff = lambda state: 0.0  # type: ignore[assignment]  # our own pause: shorter than what is asked for
    assert model.query(MESSAGES).text == "ok"
    assert 0.95 <= server.times[1] - server.times[0] < 10


def test_retry_after_may_be_a_date(serve: Serve) -> None:
    date = email.utils.formatdate(time.time() + 3, usegmt=True)
    server = serve(fails(503, "later", {"Retry-After": date}), says("ok"))
    model = LitellmModel("openai/gpt-4o-mini", timeout_s=20.0)
    model._backoff = lambda state: 0.0  # type: ignore[assignment]
    assert model.query(MESSAGES).text == "ok"
    assert 0.9 <= server.times[1] - server.times[0] < 10


def test_a_pause_of_hours_ends_the_run_instead(serve: Serve) -> None:
    server = serve(fails(429, "come back tomorrow", {"Retry-After": "86400"}))
    with pytest.raises(ModelError, match="come back tomorrow"):
        make_model().query(MESSAGES)
    assert len(server.requests) == 1


def test_an_exhausted_account_is_not_asked_again(serve: Serve) -> None:
    server = serve(fails(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ModelError, match="current quota"):
        make_model().query(MESSAGES)
    assert len(server.requests) == 1


def test_silence_is_a_time_out_and_asked_again(serve: Serve) -> None:
    server = serve(waits(3.0, says("too late")), says("in time"))
    assert make_model(timeout_s=0.5).query(MESSAGES).text == "in time"
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_get_better_is_asked_once(serve: Serve, status: int) -> None:
    server = serve(fails(status, "never"))
    with pytest.raises(ModelError) as caught:
        make_model().query(MESSAGES)
    assert len(server.requests) == 1
    assert "\n" not in str(caught.value)


def test_a_key_that_the_service_repeats_is_neither_raised_nor_kept(serve: Serve) -> None:
    serve(fails(401, f"Incorrect API key provided: {KEY}"), says(f"your key is {KEY}"))
    with pytest.raises(ModelError) as caught:
        make_model().query(MESSAGES)
    assert KEY not in str(caught.value)
    assert "[OPENAI_API_KEY]" in str(caught.value)
    answer = make_model().query(MESSAGES)
    assert KEY not in f"{answer}"


def test_a_conversation_that_is_too_long_is_an_error_of_its_own(serve: Serve) -> None:
    serve(fails(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"))
    with pytest.raises(ContextWindowError):
        make_model().query(MESSAGES)


def test_a_content_filter_is_an_answer_that_is_counted(serve: Serve) -> None:
    message = "The response was filtered due to the prompt triggering our content management policy"
    serve(fails(400, message, code="content_filter"), says("", "content_filter"))
    for _ in range(2):
        answer = make_model().query(MESSAGES)
        assert (answer.text, answer.finish_reason, answer.outcome) == ("", "content_filter", "filtered")


def test_refused_empty_and_cut_off_answers_say_so(serve: Serve) -> None:
    refusal = completion({"content": None, "refusal": "I'm sorry, I can't help with that."})
    serve(
        lambda handler, _: handler.send_json(200, refusal),
        says("I cannot assist with this request."),
        says(None),
        says("```python\nclass ModelNew", "length"),
    )
    model = make_model()
    assert [model.query(MESSAGES).outcome for _ in range(4)] == ["refused", "refused", "empty", "cut-off"]


def test_an_answer_may_come_in_pieces(serve: Serve) -> None:
    server = serve(says(make_answer()))
    answer = make_model(stream=True).query(MESSAGES)
    assert (answer.text, answer.finish_reason) == (make_answer(), "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (21, 9)
    assert server.requests[0]["stream"] is True


@pytest.mark.parametrize(
    "last",
    [b"", b'data: {"error": {"message": "Overloaded", "type": "server_error"}}\n\n', b'data: {"id": "chat\n\n'],
    ids=["nothing", "an error", "garbage"],
)
def test_a_stream_that_is_cut_in_the_middle_is_asked_for_again(serve: Serve, last: bytes) -> None:
    server = serve(stops_streaming("half of an ans", last), says("whole"))
    assert make_model(stream=True).query(MESSAGES).text == "whole"
    assert len(server.requests) == 2


def test_a_huge_answer_is_cut_and_says_so(serve: Serve) -> None:
    serve(says("x" * (ANSWER_CHARS + 1)))
    answer = make_model().query(MESSAGES)
    assert len(answer.text) == ANSWER_CHARS
    assert answer.outcome == "cut-off"


def test_a_tool_call_becomes_the_code_block_that_it_stands_for(serve: Serve) -> None:
    source = 'class ModelNew:\n    text = "é ```"\n'
    server = serve(calls_tool(json.dumps({"source": source})))
    answer = make_model(tool=True).query(MESSAGES)
    assert extract_code(answer.text) == source
    assert answer.settings["tool"] is True
    (tool,) = server.requests[0]["tools"]
    assert tool["function"]["parameters"]["required"] == ["source"]


@pytest.mark.parametrize("arguments", ['{"source": "class Mod', "{}", "[1]", '{"source": 5}', ""])
def test_a_broken_tool_call_is_an_answer_without_code(serve: Serve, arguments: str) -> None:
    serve(calls_tool(arguments))
    assert extract_code(make_model(tool=True).query(MESSAGES).text) is None


def test_a_tool_is_offered_for_answers_alone(serve: Serve) -> None:
    server = serve(says("a summary"))
    make_model(tool=True).query(MESSAGES, purpose="summary")
    assert "tools" not in server.requests[0]


def test_reasoning_is_kept_apart_from_the_answer(serve: Serve) -> None:
    message = {"content": make_answer(), "reasoning_content": "```python\nclass ModelNew: draft\n```"}
    usage = {
        "prompt_tokens": 21, "completion_tokens": 90, "total_tokens": 111,
        "completion_tokens_details": {"reasoning_tokens": 80}, "prompt_tokens_details": {"cached_tokens": 16},
    }  # fmt: skip
    serve(lambda handler, _: handler.send_json(200, completion(message, usage=usage)))
    answer = make_model().query(MESSAGES)
    assert (answer.reasoning_tokens, answer.cached_tokens) == (80, 16)
    assert answer.reasoning is not None
    assert "draft" in answer.reasoning
    assert "draft" not in answer.text


def test_no_more_requests_at_once_than_the_providers_limit(serve: Serve) -> None:
    server = serve(waits(0.2, says("ok")))
    throttle = Throttle(8, {"openai": 2})
    models = [make_model(throttle=throttle), make_model("openai/gpt-4o", throttle=throttle)]
    threads = [threading.Thread(target=models[i % 2].query, args=(MESSAGES,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(server.requests) == 6
    assert server.most_at_once == 2


def test_tokens_are_counted_by_litellm(serve: Serve) -> None:
    serve()
    model = make_model()
    short, long = model.count_tokens(MESSAGES), model.count_tokens([Message("user", "word " * 1000)])
    assert 5 < short < 40
    assert 900 < long < 1200


def test_the_window_leaves_room_for_an_answer(serve: Serve) -> None:
    serve()
    assert make_model(sampling=Sampling(max_tokens=1000)).window() == 127_000
    assert make_model().window() == 112_000
    assert make_model("openai/no-such-model-in-any-list").window() is None


def test_an_empty_key_is_none(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(says(make_answer()))
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
        make_model()
    with pytest.raises(ModelError, match=r"[Cc]redentials"):
        make_model(needs_key=False, wait=lambda state: pytest.fail("it was tried again")).query(MESSAGES)
    assert server.requests == []
