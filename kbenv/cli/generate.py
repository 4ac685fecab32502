"""`kbenv generate`: answers only, judged later.

The directory is that of a run: `kbenv run` with the same options judges what is there and asks for what is missing, and
`kbenv rejudge` judges it under any protocol. No device is needed here, so that the machine with the key and the network
need not be the one with the GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from kbenv.cli.agents import (
    AUTO,
    DEFAULT_AGENT,
    add_agent_options,
    agent_settings,
    check_agent_options,
    choose_agents,
    make_throttle,
    open_model,
    read_prompt_options,
)
from kbenv.cli.judging import add_judging_options, choose_diagnostics, find_problems, leave_out_unjudged
from kbenv.cli.run import (
    EXIT_BUDGET,
    EXIT_DONE,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    add_asking_options,
    make_budget,
    make_config,
)
from kbenv.errors import ModelError, UsageError

if TYPE_CHECKING:
    from kbenv.agents import Model
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
    add_agent_options(parser)
    add_judging_options(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing was asked.
        ModelError: the service failed for good.
    """
    from kbenv.agents.model import BudgetedModel, BudgetSpentError
    from kbenv.agents.parallel import in_order
    from kbenv.evaluator import check_judged
    from kbenv.prompt import render_prompt
    from kbenv.protocol import get_protocol
    from kbenv.reward import NEED_COMPILED
    from kbenv.store import Store, StoreError

    _check(arguments)
    (kind,) = choose_agents(arguments)
    protocol = get_protocol(
        arguments.protocol, arguments.precision, require_custom_kernel=arguments.require_custom_kernel
    )
    if arguments.reward in NEED_COMPILED:
        protocol = protocol.model_copy(update={"compiled_baseline": True})
    protocol = protocol.model_copy(update={"diagnostics": choose_diagnostics(arguments)})
    device = _kind_of_device(arguments.device)
    options = read_prompt_options(arguments, None)
    throttle, at_once = make_throttle(arguments)
    problems = find_problems(arguments, arguments.problems)
    model = open_model(arguments, arguments.model[0], problems, throttle)
    settings = agent_settings(arguments, model.service, at_once)
    problems = [
        problem
        for problem in leave_out_unjudged(model.problems, lambda problem: check_judged(problem, protocol))
        if problem.id not in protocol.excluded and problem.same_as not in protocol.excluded
    ]
    store = Store(arguments.out, make_config(arguments, kind.name, model.name, 1, protocol, device))
    budget = make_budget(arguments, [store])
    started, asked, n = time.monotonic(), 0, kind.answers(settings)

    def answer(problem: Problem) -> int:
        prompt = render_prompt(problem, protocol, device, arguments.backend, options)
        opened = model.open(problem.id)
        budgeted = opened if budget is None else BudgetedModel(opened, budget)
        return _answer(problem.id, prompt, budgeted, store, n, at_once if model.service is not None else 1)

    try:
        tasks = [partial(answer, problem) for problem in problems]
        for problem, new in zip(problems, in_order(tasks, arguments.parallel or 1), strict=True):
            asked += new
            print(f"{problem.id}: {n} answers" + (f" ({new} new)" if new < n else ""), flush=True)
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


def _check(arguments: argparse.Namespace) -> None:
    check_agent_options(arguments)
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UsageError(f"--parallel must be at least 1; found {arguments.parallel}")
    if arguments.agent != [DEFAULT_AGENT] or len(arguments.model) > 1:
        raise UsageError(f"answers that are judged later are those of one model and of {DEFAULT_AGENT}")
    if arguments.hardware == AUTO:
        raise UsageError("no device is asked here: name the one of --hardware, such as H100")


def _kind_of_device(device: str) -> str:
    """Whose sizes the prompts show. Raises UsageError."""
    if device == "auto":
        from kbenv.sandbox.choice import choose_device

        device, _ = choose_device("auto")
    kind = device.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"--device must be auto, cpu or cuda, whose sizes prompts show; found {device!r}")
    return kind


def _answer(problem: str, prompt: str, model: Model, store: Store, n: int, at_once: int) -> int:
    """Asks for the samples that are not stored; returns how many that were."""
    from kbenv.agents import Message
    from kbenv.agents.parallel import in_order
    from kbenv.agents.recording import RecordedModel
    from kbenv.prompts import render

    recorded = RecordedModel(model, store, problem)
    messages = [Message("system", render("system.j2", turns=1)), Message("user", prompt)]
    new = sum(store.load(problem, sample, 0) is None for sample in range(n))
    list(in_order([partial(recorded.query, messages, sample=sample) for sample in range(n)], at_once))
    return new
