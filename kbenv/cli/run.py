"""`kbenv run`: agents on many problems, every answer and verdict on disk, and a table at the end.

Run again with the same options it goes on where it stopped, and asks and judges nothing twice. With several agents or
models each pair of them is a run of its own, in a folder of its own under --out, and all share one budget.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbenv.cli.agents import (
    OpenedModel,
    add_agent_options,
    agent_config,
    agent_settings,
    check_agent_options,
    choose_agents,
    make_throttle,
    open_model,
    parse_feedback,
    read_prompt_options,
)
from kbenv.cli.judging import (
    add_devices_option,
    add_judging_options,
    find_problems,
    leave_out_unjudged,
    open_pool,
)
from kbenv.cli.progress import Progress
from kbenv.cli.report import print_report, read_report
from kbenv.cli.summary import Played, Row, print_closing, print_comparison, print_table
from kbenv.errors import ModelError, ProblemExcludedError, SandboxError, UsageError
from kbenv.reward import DEFAULT_REWARD, REWARDS

if TYPE_CHECKING:
    from kbenv.agents import TextEnv, Turn
    from kbenv.agents.catalog import Kind, Settings
    from kbenv.agents.model import Budget
    from kbenv.agents.recording import RecordedEvaluator
    from kbenv.pool import EvaluatorPool
    from kbenv.problems.problem import Problem
    from kbenv.prompt import PromptOptions
    from kbenv.protocol import Protocol
    from kbenv.store import Store

EXIT_DONE = 0
EXIT_BUDGET = 1
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130

TRAJECTORIES = "trajectories.jsonl"
LEDGER = "ledger.jsonl"
CARD = "README.md"

Stop = ModelError | OSError
"""What ends a run early: the model (or its budget), or a disk that takes nothing more."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="let agents loose on problems",
        description="Let agents answer problems, judge every answer, and keep all of it in a directory. Interrupted "
        "(Ctrl-C) or stopped, it goes on where it was when run again with the same options.",
        epilog="Exit codes: 0 the run is complete, whatever the verdicts; 1 the budget is spent; 2 bad usage; "
        "3 a fault of the machine, of kbenv or of the model's service.",
    )
    add_asking_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="ask and judge nothing: say how many calls, tokens and dollars it would take; needs no key",
    )
    add_agent_options(parser)
    add_judging_options(parser)
    add_devices_option(parser)
    parser.set_defaults(func=run)


def add_asking_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is asked about, where it is kept, and how much of it at a time."""
    parser.add_argument("--problems", required=True, metavar="PATTERN", help="such as 'core/*' or 'core/level1/relu'")
    parser.add_argument("--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the run is kept")
    parser.add_argument("--reward", choices=tuple(REWARDS), default=DEFAULT_REWARD)
    parser.add_argument(
        "--parallel", type=int, metavar="N",
        help="problems at work at once: while one is judged, others are answered (default: 1; with --devices twice "
        "their number)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing was asked and nothing judged.
        SandboxError: the evaluator could not be started.
    """
    from rich.console import Console

    check_agent_options(arguments)
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UsageError(f"--parallel must be at least 1; found {arguments.parallel}")
    kinds = choose_agents(arguments)
    throttle, at_once = make_throttle(arguments)
    problems = find_problems(arguments, arguments.problems)
    models = [open_model(arguments, name, problems, throttle) for name in arguments.model]
    console = Console(highlight=False)
    started = time.monotonic()
    progress = Progress(console)
    alone = arguments.devices is None and arguments.parallel in (None, 1)
    with open_pool(arguments, progress.show_phase, progress.show_build, one_at_a_time=alone) as pool:
        prompt = read_prompt_options(arguments, pool)
        judged = {problem.id for problem in leave_out_unjudged(problems, pool.admit)}
        models = [replace(model, problems=[p for p in model.problems if p.id in judged]) for model in models]
        runs = [
            Run(arguments, kind, model, _settings(arguments, model, at_once), pool, prompt)
            for model in models
            for kind in kinds
        ]
        if arguments.dry_run:
            from kbenv.cli.dry_run import print_estimate

            return print_estimate(console, runs)
        stores = [run.open_store(alone=len(runs) == 1) for run in runs]
        budget = make_budget(arguments, stores)
        lanes = arguments.parallel or (1 if arguments.devices is None else 2 * len(pool.devices))
        try:
            with progress:
                tables, stopped = _play_all(runs, stores, budget, progress, lanes)
        except KeyboardInterrupt:
            print("kbenv: interrupted; run the same command again to go on", file=sys.stderr)
            return EXIT_INTERRUPTED
    for (this_run, rows), store in zip(tables, stores, strict=False):
        if len(runs) > 1:
            console.print(f"\n{this_run.title}", markup=False)
        print_table(console, rows)
        print_report(console, read_report(store.directory, problems_dir=arguments.problems_dir))
    every_row, spent = [row for _, rows in tables for row in rows], [store.spent() for store in stores]
    print_closing(console, every_row, spent, time.monotonic() - started, arguments.out)
    if len(tables) > 1:
        played = zip(tables, spent, strict=False)
        print_comparison(console, [Played(of.kind.name, of.model.name, rows, took) for (of, rows), took in played])
    return _exit_code(every_row, stopped)


@dataclass(frozen=True)
class Run:
    """One agent with one model: what all its problems share."""

    arguments: argparse.Namespace
    kind: Kind
    model: OpenedModel
    settings: Settings
    evaluator: EvaluatorPool
    prompt: PromptOptions

    @property
    def title(self) -> str:
        return f"{self.kind.name} with {self.model.name}"

    @property
    def answers(self) -> int:
        """Most answers to one problem."""
        return self.kind.answers(self.settings)

    def open_store(self, *, alone: bool) -> Store:
        """Where this run is kept: --out itself, or a folder under it where there are several. Raises UsageError."""
        from kbenv.store import Store

        out: Path = self.arguments.out
        folder = out if alone else out / re.sub(r"[^A-Za-z0-9._+-]", "_", f"{self.kind.name}+{self.model.name}")
        turns = self.kind.turns(self.settings)
        evaluator = self.evaluator
        return Store(
            folder,
            make_config(self.arguments, self.kind.name, self.model.name, turns, evaluator.protocol, evaluator.device),
        )

    def play(
        self, store: Store, budget: Budget | None, progress: Progress, lanes: int
    ) -> tuple[list[Row], Stop | None]:
        """A row for each problem, and what stopped the run before its end, if something did."""
        from kbenv.agents.parallel import in_order

        tasks = [partial(self._play_one, problem, store, budget, progress) for problem in self.model.problems]
        rows: list[Row] = []
        for row, stopped in in_order(tasks, lanes):
            rows.append(row)
            if stopped is not None:
                left = len(tasks) - len(rows)
                rest = f"; {left} of {len(tasks)} problems were not reached" if left else ""
                print(f"kbenv: {stopped}{rest}", file=sys.stderr)
                return rows, stopped
        return rows, None

    def _play_one(
        self, problem: Problem, store: Store, budget: Budget | None, progress: Progress
    ) -> tuple[Row, Stop | None]:
        from kbenv.agents import Trajectory
        from kbenv.agents.model import BudgetedModel, ContextWindowError
        from kbenv.agents.recording import RecordedEvaluator, RecordedModel
        from kbenv.store import StoreError

        asked = self.model.open(problem.id)
        model = RecordedModel(asked if budget is None else BudgetedModel(asked, budget), store, problem.id)
        turns: list[Turn] = []

        def on_turn(turn: Turn) -> None:
            new = model.finish(turn)
            turns.append(turn)
            progress.show(problem.id, turn, stored=not new, by_turn=not self.kind.one_answer)

        def row(fault: str | None = None, excluded: bool = False) -> Row:
            return Row(Trajectory(problem.id, self.kind.name, model.name, tuple(turns)), fault, excluded)

        progress.begin(problem.id)
        try:
            self.evaluator.admit(problem)
            env = self._make_env(problem, RecordedEvaluator(self.evaluator, model))
            try:
                self.kind.make(model, self.settings).run(env, problem.id, on_turn)
            finally:
                env.close()
        except ProblemExcludedError:
            return row(excluded=True), None
        except SandboxError as error:
            progress.say(f"{problem.id}: fault: {error}")
            return row(fault=str(error)), None
        except ContextWindowError as error:  # of this problem alone: the turns that there are stand
            progress.say(f"{problem.id}: {error}")
            return row(), None
        except (ModelError, StoreError) as error:
            return row(), error
        finally:
            progress.finish_problem(self.answers - len(turns))
        return row(), None

    def _make_env(self, problem: Problem, recorded: RecordedEvaluator) -> TextEnv:
        from kbenv.env import MultiTurnEnv, SingleTurnEnv
        from kbenv.profile import render_profile

        execution, profile = parse_feedback(self.arguments.feedback)
        options: dict[str, Any] = {
            "evaluator": recorded,
            "reward": self.arguments.reward,
            "prompt": self.prompt,
            "evaluation": True,
            "execution_feedback": execution,
            "profiler": render_profile if profile else None,
        }
        if self.kind.episode == "single":
            return SingleTurnEnv(problem, **options)
        return MultiTurnEnv(problem, max_turns=self.kind.turns(self.settings), **options)


def make_config(
    arguments: argparse.Namespace, agent: str, model: str, turns: int, protocol: Protocol, device: str
) -> dict[str, Any]:
    """What a run must have in common with itself when it goes on; budgets and the number of devices may change."""
    from kbenv.prompts import render

    keys = ("problems", "protocol", "precision", "sandbox", "backend", "require_custom_kernel", "reward")
    return {
        **{key: getattr(arguments, key) for key in keys},
        **agent_config(arguments),
        "agent": agent,
        "model": model,
        "problems_dir": None if arguments.problems_dir is None else str(arguments.problems_dir),
        "device": device.split(":")[0],
        "rules": protocol.model_dump(mode="json"),
        "system": render("system.j2", turns=turns),
    }


def _settings(arguments: argparse.Namespace, model: OpenedModel, at_once: int) -> Settings:
    return agent_settings(arguments, model.service, at_once if model.service is not None else 1)


def make_budget(arguments: argparse.Namespace, stores: Sequence[Store]) -> Budget | None:
    """What all runs may spend together, less what earlier ones did; None without a limit."""
    if arguments.max_cost is None and arguments.max_calls is None:
        return None
    from kbenv.agents.model import Budget

    spent = [store.spent() for store in stores]
    costs = [item.cost_usd for item in spent]
    return Budget(
        arguments.max_cost,
        arguments.max_calls,
        spent_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        calls=sum(item.calls for item in spent),
    )


def _play_all(
    runs: Sequence[Run], stores: Sequence[Store], budget: Budget | None, progress: Progress, lanes: int
) -> tuple[list[tuple[Run, list[Row]]], Stop | None]:
    """Every run's rows, and what stopped the last of them; a stop ends those after it too."""
    from kbenv.store import StoreError, write_file
    from kbenv.trajectory import dataset_card

    progress.expect(sum(run.answers * len(run.model.problems) for run in runs))
    tables: list[tuple[Run, list[Row]]] = []
    for this_run, store in zip(runs, stores, strict=True):
        if len(runs) > 1:
            progress.say(this_run.title)
        rows, stopped = this_run.play(store, budget, progress, lanes)
        tables.append((this_run, rows))
        try:
            _write_files(this_run, store)
            if len(runs) > 1:  # the folder of all is a dataset, too
                write_file(store.directory.parent / CARD, dataset_card(f"*/{TRAJECTORIES}"))
        except StoreError as error:
            stopped = stopped or error
        if stopped is not None:
            return tables, stopped
    return tables, None


def _write_files(this_run: Run, store: Store) -> None:
    """The run's trajectories and its ledger, one line for each turn and call. Raises StoreError."""
    from kbenv.store import StoredTurn
    from kbenv.trajectory import dataset_card, ledger_line, to_json, turn_line

    calls = list(store.calls())
    lines = [to_json(turn_line(call, this_run.kind.name)) for call in calls if isinstance(call, StoredTurn)]
    store.write_text(TRAJECTORIES, "".join(lines))
    store.write_text(CARD, dataset_card(TRAJECTORIES))
    store.write_text(LEDGER, "".join(to_json(ledger_line(call)) for call in calls))


def _exit_code(rows: Sequence[Row], stopped: Stop | None) -> int:
    from kbenv.agents.model import BudgetSpentError

    if any(row.fault is not None for row in rows):
        return EXIT_FAULT
    if stopped is not None:
        return EXIT_BUDGET if isinstance(stopped, BudgetSpentError) else EXIT_FAULT
    return EXIT_DONE
