"""`kbenv mcp`: one problem's tools for a coding agent, by the Model Context Protocol on standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kbenv.cli.judging import add_judging_options, open_evaluator
from kbenv.errors import SandboxError, UsageError

if TYPE_CHECKING:
    from kbenv.verdict import Verdict
    from kbenv.workbench import OnVerdict, Tool, Workbench


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the `mcp` subcommand."""
    parser = subparsers.add_parser(
        "mcp",
        help="serve a problem's tools to a coding agent (Model Context Protocol)",
        description="Serve one problem to a coding agent over the Model Context Protocol, on standard input and "
        "output: tools to read it, compile, check, profile and submit, within budgets.",
    )
    parser.add_argument("problem", metavar="PROBLEM", help="a name such as core/level1/relu, or a problem file's path")
    parser.add_argument("--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--submissions", type=int, default=10, metavar="N", help="most submissions (default: 10)")
    parser.add_argument("--calls", type=int, default=100, metavar="N", help="most judged calls in all (default: 100)")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, metavar="S", help="most seconds of judging in all (default: 3600)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="append every source and verdict, a JSON line each")
    add_judging_options(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until the agent closes standard input, and returns the exit code.

    Raises:
        UsageError: the MCP SDK is not installed, or an option is no good.
    """
    from kbenv.problems import load_problem
    from kbenv.workbench import Budget, Workbench, trial_protocol

    if not all(budget > 0 for budget in (arguments.submissions, arguments.calls, arguments.seconds)):
        raise UsageError("--submissions, --calls and --seconds must be more than 0")
    _import_sdk()
    problem = load_problem(arguments.problem, problems_dir=arguments.problems_dir)
    with ExitStack() as stack:
        judge = stack.enter_context(open_evaluator(arguments, lambda _: None))
        trial_rules = trial_protocol(judge.protocol)
        trial = stack.enter_context(open_evaluator(arguments, lambda _: None, protocol=trial_rules))
        budget = Budget(arguments.calls, arguments.submissions, arguments.seconds)
        on_verdict = None if arguments.out is None else _writer(arguments.out)
        make_server(Workbench(problem, judge, trial, budget, on_verdict)).run()
    return 0


def make_server(workbench: Workbench) -> Any:
    """An `mcp.server.MCPServer` with the workbench's tools; one call at a time, apart from the server's own thread.

    Raises:
        UsageError: the MCP SDK is not installed.
    """
    make, tool_error = _import_sdk()
    from kbenv.workbench import TOOLS, describe_tool

    server = make("kbenv")
    turn = asyncio.Lock()

    async def call(tool: Tool, *source: str) -> str:
        async with turn:
            try:
                return cast(str, await asyncio.to_thread(getattr(workbench, tool), *source))
            except (UsageError, SandboxError) as e:
                raise tool_error(str(e)) from e

    def tool_of_source(tool: Tool) -> Any:
        async def run_tool(source: str) -> str:
            return await call(tool, source)

        return run_tool

    async def read_problem() -> str:
        return await call("read_problem")

    for tool in TOOLS:
        function = read_problem if tool == "read_problem" else tool_of_source(tool)
        server.tool(name=tool, description=describe_tool(tool))(function)
    return server


def _import_sdk() -> tuple[Any, type[Exception]]:
    """The SDK's server, and the exception whose words reach the agent."""
    try:
        server: Any = import_module("mcp.server").MCPServer  # an extra: type checkers must do without it as well
        error: type[Exception] = import_module("mcp.server.mcpserver.exceptions").ToolError
    except (ImportError, AttributeError) as e:
        raise UsageError(f"kbenv mcp needs the MCP SDK, version 2 ({e}): pip install 'kbenv[mcp]'") from e
    return server, error


def _writer(path: Path) -> OnVerdict:
    def write(tool: Tool, source: str, verdict: Verdict) -> None:
        line = {"tool": tool, "source": source, "verdict": verdict.model_dump(mode="json")}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    return write
