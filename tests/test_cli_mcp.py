"""`kbenv mcp` over the SDK's client in memory, and over a real judge."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kbenv.cli import main
from kbenv.cli.mcp import make_server
from kbenv.errors import SandboxError
from kbenv.evaluator import Evaluator
from kbenv.protocol import get_protocol
from kbenv.verdict import Status, Verdict
from kbenv.workbench import TOOLS, Budget, Workbench, trial_protocol
from tests.fakes import RELU_SOURCE, SUBMISSION_SOURCE, ScriptedEvaluator, make_problem, make_verdict

mcp: Any = pytest.importorskip("mcp", reason="the extra mcp is not installed")
SOURCE = "class ModelNew: pass\n"


def talk(workbench: Workbench, *calls: tuple[str, dict[str, str]]) -> list[Any]:
    """The tools as listed, and what each call returned."""

    async def session() -> list[Any]:
        async with mcp.Client(make_server(workbench)) as client:
            listed = await client.list_tools()
            return [listed.tools, *[await client.call_tool(name, arguments) for name, arguments in calls]]

    return asyncio.run(session())


def bench(trials: list[Verdict | Exception], verdicts: list[Verdict | Exception], **budget: Any) -> Workbench:
    judge, trial = ScriptedEvaluator(verdicts), ScriptedEvaluator(trials, protocol=trial_protocol(get_protocol()))
    return Workbench(make_problem(), cast(Evaluator, judge), cast(Evaluator, trial), Budget(**budget))


def text(result: Any) -> str:
    return "".join(part.text for part in result.content)


def test_an_agent_reads_compiles_checks_profiles_and_submits() -> None:
    made = bench([make_verdict(speedup=1.5)], [make_verdict(speedup=1.4)])
    source = {"source": SOURCE}
    tools, *results = talk(made, ("read_problem", {}), *[(tool, source) for tool in TOOLS[1:]])
    assert [tool.name for tool in tools] == list(TOOLS)
    assert all(tool.description for tool in tools)
    assert [bool(result.is_error) for result in results] == [False] * 5
    task, compiled, checked, profiled, submitted = map(text, results)
    assert "class Model(" in task
    assert compiled.startswith("It compiles")
    assert "trials are right" in checked
    assert "1.5x" in profiled
    assert "1.4x" in submitted
    assert "Left: 9 submissions, 98 judged calls" in submitted


def test_a_spent_budget_and_a_fault_of_the_machine_are_errors_that_say_why() -> None:
    made = bench([SandboxError("the device was lost")], [make_verdict()], submissions=1)
    source = {"source": SOURCE}
    _, first, second, fault = talk(made, ("submit", source), ("submit", source), ("check", source))
    assert not first.is_error
    assert second.is_error
    assert "all 1 submissions are used" in text(second)
    assert fault.is_error
    assert "the device was lost" in text(fault)


def test_a_hidden_failure_is_told_as_everywhere() -> None:
    failed = make_verdict(Status.WRONG_HIDDEN, message="SECRET", detail="SECRET")
    _, result = talk(bench([make_verdict()], [failed]), ("submit", {"source": SOURCE}))
    assert text(result).startswith("WRONG_HIDDEN: a hidden check failed\n")
    assert "SECRET" not in text(result)


def test_calls_that_lack_their_source_are_refused() -> None:
    _, result = talk(bench([make_verdict()], [make_verdict()]), ("check", {}))
    assert result.is_error


@pytest.mark.parametrize("option", ["--submissions=0", "--calls=-1", "--seconds=nan"])
def test_budgets_that_are_none_are_bad_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "core/level1/relu", option]) == 2
    assert "must be more than 0" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_a_real_judge_over_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "log.jsonl"
    problem = tmp_path / "relu.py"
    problem.write_text(RELU_SOURCE)
    options = ["--protocol", "verified", "--effort", "quick", "--device", "cpu", "--sandbox", "process"]
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", "from kbenv.cli import main; main()", "mcp", str(problem), *options, "--out", str(out)],
        env=dict(os.environ),
    )

    async def session() -> list[Any]:
        async with mcp.Client(server) as client:
            wrong = SUBMISSION_SOURCE.replace("min=0", "min=1")
            return [
                await client.call_tool(name, {"source": source})
                for name, source in (("check", wrong), ("profile", SUBMISSION_SOURCE), ("submit", SUBMISSION_SOURCE))
            ]

    wrong, profiled, submitted = map(text, asyncio.run(session()))
    assert wrong.startswith("WRONG_VALUE: ")
    assert profiled.startswith("PASSED: ")
    assert "Profile of one call" in profiled
    assert submitted.startswith("PASSED: ")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["tool"] for line in lines] == ["check", "profile", "submit"]
    assert lines[2]["verdict"]["credited"] is True
