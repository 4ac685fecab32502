"""`kbenv generate`: answers only, judged later.

The directory is that of a run: `kbenv run` with the same options judges what is there and asks for what is missing, and
`kbenv rejudge` judges it under any protocol. No device is needed here, so that the machine with the key and the network
need not be the one with the GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from kbenv.cli.judging import add_judging_options
from kbenv.cli.lanes import in_lanes
from kbenv.cli.run import (
    EXIT_BUDGET,
    EXIT_DONE,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    add_asking_options,
    check_numbers,
    choose_model,
    make_config,
    within_budget,
)
from kbenv.errors import ModelError, UsageError

if TYPE_CHECKING:
    from kbenv.agents import Message, Model
    from kbenv.problems.problem import Problem
    from kbenv.store import Store


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv generate`."""
    parser = subparsers.add_parser(
        "generate",
        help="ask a model for answers, and judge none",
        description="Ask a model for independent answers to problems and keep them; `kbenv run` with the same options "
        "judges them. Interrupted (Ctrl-C), it goes on where it was when run again.",
        epilog="Exit codes: 0 every answer is there; 1 the budget is spent; 2 bad usage; 3 a fault of the model's "
        "service.",
    )
    add_asking_options(parser)
    add_judging_options(parser)
    parser.set_defaults(func=run, agent="single-shot", turns=None)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing was asked.
        ModelError: the service failed for good.
    """
    from kbenv.agents.model import BudgetSpentError
    from kbenv.problems import list_problems
    from kbenv.protocol import get_protocol
    from kbenv.reward import NEED_COMPILED
    from kbenv.store import Store, StoreError

    check_numbers(arguments)
    protocol = get_protocol(
        arguments.protocol, arguments.precision, require_custom_kernel=arguments.require_custom_kernel
    )
    if arguments.reward in NEED_COMPILED:
        protocol = protocol.model_copy(update={"compiled_baseline": True})
    device = _kind_of_device(arguments.device)
    problems = list_problems(arguments.problems, problems_dir=arguments.problems_dir)
    problems, open_model = choose_model(arguments, problems)
    problems = [problem for problem in problems if problem.id not in protocol.excluded]
    store = Store(arguments.out, make_config(arguments, protocol, device))
    open_model = within_budget(arguments, store, open_model)
    started, asked = time.monotonic(), 0

    def answer(problem: Problem) -> int:
        from kbenv.prompt import render_prompt

        prompt = render_prompt(problem, protocol, device, arguments.backend)
        return _answer(problem.id, prompt, open_model(problem.id), store, arguments.n)

    try:
        for problem, new in in_lanes(problems, answer, arguments.parallel or 1):
            asked += new
            print(f"{problem.id}: {arguments.n} answers" + (f" ({new} new)" if new < arguments.n else ""), flush=True)
    except BudgetSpentError as error:
        print(f"kbenv: {error}", file=sys.stderr)
        return EXIT_BUDGET
    except (ModelError, StoreError) as error:
        print(f"kbenv: {error}", file=sys.stderr)
        return EXIT_FAULT
    except KeyboardInterrupt:
        print("kbenv: interrupted; run the same command again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(f"{len(problems)} problems; {asked} answers asked in {time.monotonic() - started:.0f} s; in {arguments.out}")
    return EXIT_DONE


def _kind_of_device(device: str) -> str:
    """Whose sizes the prompts show. Raises UsageError."""
    if device == "auto":
        from kbenv.sandbox.choice import choose_device

        device, _ = choose_device("auto")
    kind = device.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"--device must be auto, cpu or cuda, whose sizes prompts show; found {device!r}")
    return kind


def _answer(problem: str, prompt: str, model: Model, store: Store, n: int) -> int:
    """Asks for the samples that are not stored; returns how many that were."""
    from kbenv.agents import Message
    from kbenv.agents.recording import RecordedModel
    from kbenv.prompts import render

    recorded = RecordedModel(model, store, problem)
    messages: list[Message] = [Message("system", render("system.j2", turns=1)), Message("user", prompt)]
    new = sum(store.load(problem, sample, 0) is None for sample in range(n))
    for sample in range(n):
        recorded.query(messages, sample=sample)
    return new
