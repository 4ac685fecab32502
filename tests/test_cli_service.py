"""`kbenv run` with a real client against a service on loopback: what a user gets on a bad day, and what is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli import main
from kbenv.verdict import Status
from tests.chat_server import KEY, ChatServer, Handler, fails, hangs_up, says
from tests.fakes import ScriptedEvaluator, make_verdict
from tests.models import make_answer

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network for prices
pytest.importorskip("litellm")


def tells_the_key(handler: Handler, request: dict[str, Any]) -> None:
    """A service that repeats what it should not."""
    says(f"{make_answer()}\nYou sent {handler.headers['Authorization']}.")(handler, request)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> ScriptedEvaluator:
    evaluator = ScriptedEvaluator([make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0)])
    monkeypatch.setattr("kbenv.evaluator.Evaluator", lambda **_: evaluator)
    monkeypatch.setattr("kbenv.agents.model.FIRST_WAIT_S", 0.0)
    return evaluator


def run(monkeypatch: pytest.MonkeyPatch, server: ChatServer, out: Path, *more: str) -> int:
    monkeypatch.setenv("OPENAI_API_BASE", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    problems = ["--problems", "core/level1/relu", "--out", str(out), "--model", "openai/gpt-4o-mini"]
    return main(["run", *problems, *more])


def test_a_bad_day_ends_well_and_everything_is_on_the_books(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [fails(429, "slow down"), hangs_up, says(make_answer()), fails(500, "oops"), says(make_answer(1))]
    with ChatServer(script) as server:
        assert run(monkeypatch, server, tmp_path / "run", "-n", "2", "--at-once", "1", "--temperature", "0.5") == 0
    assert "credited 1/1 problems; 2 answers; 60 tokens; $0.0000;" in capsys.readouterr().out
    ledger = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [call["attempts"] for call in ledger] == [3, 2]
    for call in ledger:
        assert (call["prompt_tokens"], call["completion_tokens"]) == (21, 9)
        assert call["cost_usd"] > 0
        assert call["seconds"] > 0
        assert call["settings"] == {"temperature": 0.5, "stream": False, "tool": False, "provider": "openai"}


def test_no_secret_is_in_any_file_or_line(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [tells_the_key, fails(401, f"Incorrect API key provided: {KEY}")]
    with ChatServer(script) as server:
        assert run(monkeypatch, server, tmp_path / "run", "-n", "2", "--at-once", "1") == 3
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    said = capsys.readouterr()
    assert "[OPENAI_API_KEY]" in said.err
    assert KEY not in said.out + said.err
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= 4
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
    assert "[OPENAI_API_KEY]" in (tmp_path / "run" / "trajectories.jsonl").read_text()


def test_a_dry_run_names_the_cost_by_litellms_prices_and_what_would_be_sent(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer([]) as server:
        more = ["--agent", "multi-turn", "--turns", "4", "--max-tokens", "1000", "--sampling", "greedy", "--dry-run"]
        assert run(monkeypatch, server, tmp_path / "run", *more) == 0
        assert server.requests == []
    out = " ".join(capsys.readouterr().out.split())
    assert "4,000" in out
    assert "nothing was asked" in out
    assert "about $0.0" in out  # feedback may have more tokens than its characters say


def test_what_the_model_does_not_accept_is_bad_usage_before_anything_is_asked(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer([]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        arguments = ["--problems", "core/level1/relu", "--out", str(tmp_path / "run"), "--model", "openai/gpt-5"]
        assert main(["run", *arguments, "--temperature", "0.5"]) == 2
        assert server.requests == []
    assert "openai/gpt-5 takes no temperature at all" in capsys.readouterr().err


def test_samples_are_asked_for_at_once_up_to_the_limit(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.chat_server import waits

    with ChatServer([waits(0.3, says(make_answer()))]) as server:
        assert run(monkeypatch, server, tmp_path / "run", "-n", "6", "--at-once", "3") == 0
        assert server.most_at_once == 3
    turns = [json.loads(line) for line in (tmp_path / "run" / "trajectories.jsonl").read_text().splitlines()]
    assert [turn["sample"] for turn in turns] == list(range(6))


def test_a_dry_run_needs_no_key_and_says_what_its_cost_rests_on(
    judge: ScriptedEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = ["run", "--problems", "core/level1/relu", "--out", str(tmp_path / "run"), "--model", "openai/gpt-4o-mini"]
    assert main([*asked, "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "answers are taken to have 4,000 tokens" in out
    assert "about $0.0" in out
    assert main([*asked, "--dry-run", "--max-tokens", "500"]) == 0
    assert "at most $0.0" in capsys.readouterr().out
    assert main(asked) == 2
    assert "set OPENAI_API_KEY" in capsys.readouterr().err
