"""`kbenv prompt`: shows what a model would read, before anything is asked of one."""

from __future__ import annotations

import argparse
from pathlib import Path

from kbenv.cli.agents import AUTO, add_prompt_options, read_prompt_options
from kbenv.cli.judging import add_judging_options, open_evaluator
from kbenv.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the `prompt` subcommand."""
    parser = subparsers.add_parser(
        "prompt",
        help="show the prompt of a problem",
        description="Print what a model reads before its first answer to a problem: the task, the rules that it is "
        "judged by, and what the options add. Nothing is asked and nothing judged.",
    )
    parser.add_argument("problem", metavar="PROBLEM", help="a name such as core/level1/relu, or a problem file's path")
    parser.add_argument("--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument(
        "--turns", type=int, default=1, metavar="T", help="answers that the model may give (default: 1)"
    )
    parser.add_argument("--system", action="store_true", help="also print the system message, before it")
    add_prompt_options(parser)
    add_judging_options(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the prompt and returns the exit code.

    Raises:
        UsageError: the problem, a GPU's name or the examples' language is unknown.
        SandboxError: --hardware auto, and the machine that judges could not be asked.
    """
    from kbenv.problems import load_problem
    from kbenv.prompt import render_prompt
    from kbenv.prompts import render
    from kbenv.sandbox.choice import parse_device

    if arguments.turns < 1:
        raise UsageError(f"--turns must be at least 1; found {arguments.turns}")
    problem = load_problem(arguments.problem, problems_dir=arguments.problems_dir)
    elsewhere = None
    if arguments.hardware != AUTO and parse_device(arguments.device)[0] == "cuda":
        # Of a machine that need not be this one: a prompt needs none, and an evaluator would want its GPU.
        elsewhere, arguments.device, arguments.sandbox = arguments.device, "cpu", "process"
    with open_evaluator(arguments, lambda _: None) as evaluator:
        options = read_prompt_options(arguments, evaluator)
        text = render_prompt(problem, evaluator.protocol, elsewhere or evaluator.device, evaluator.backend, options)
    if arguments.system:
        print(render("system.j2", turns=arguments.turns))
    print(text.rstrip())
    return 0
