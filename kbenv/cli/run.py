"""`kbenv run`: agents on many problems, every answer and verdict on disk, and a table at the end.

Run again with the same options it goes on where it stopped, and asks and judges nothing twice. With several agents or
models each pair of them is a run of its own, in a folder of its own under --out, and all share one budget.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

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
from kbenv.cli.judging import add_devices_option, add_judging_options, open_pool
from kbenv.cli.report import print_report, read_report
from kbenv.errors import ModelError, SandboxError, UsageError
from kbenv.reward import DEFAULT_REWARD, REWARDS

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.agents import Outcome, TextEnv, Trajectory, Turn
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

NARROW_COLUMNS = 76
TRAJECTORIES = "trajectories.jsonl"
LEDGER = "ledger.jsonl"

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
        "--dry-run", action="store_true", help="ask and judge nothing: say how many calls, tokens and dollars at most"
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

    from kbenv.problems import list_problems

    check_agent_options(arguments)
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UsageError(f"--parallel must be at least 1; found {arguments.parallel}")
    kinds = choose_agents(arguments)
    throttle, at_once = make_throttle(arguments)
    problems = list_problems(arguments.problems, problems_dir=arguments.problems_dir)
    models = [open_model(arguments, name, problems, throttle) for name in arguments.model]
    console = Console(highlight=False)
    started = time.monotonic()
    progress = _Progress(console)
    alone = arguments.devices is None and arguments.parallel in (None, 1)
    with open_pool(arguments, progress.show_phase, progress.show_build, one_at_a_time=alone) as pool:
        prompt = read_prompt_options(arguments, pool)
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
        _print_table(console, rows)
        print_report(console, read_report(store.directory, problems_dir=arguments.problems_dir))
    _print_closing(console, [row for _, rows in tables for row in rows], time.monotonic() - started, arguments.out)
    if len(tables) > 1:
        _print_comparison(console, tables)
    return _exit_code([row for _, rows in tables for row in rows], stopped)


@dataclass(frozen=True)
class _Row:
    """One problem of the run: the turns that were judged, and the fault that ended them, if one did."""

    trajectory: Trajectory
    fault: str | None = None
    excluded: bool = False


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
        self, store: Store, budget: Budget | None, progress: _Progress, lanes: int
    ) -> tuple[list[_Row], Stop | None]:
        """A row for each problem, and what stopped the run before its end, if something did."""
        from kbenv.agents.parallel import in_order

        tasks = [partial(self._play_one, problem, store, budget, progress) for problem in self.model.problems]
        rows: list[_Row] = []
        for row, stopped in in_order(tasks, lanes):
            rows.append(row)
            if stopped is not None:
                print(f"kbenv: {stopped}", file=sys.stderr)
                return rows, stopped
        return rows, None

    def _play_one(
        self, problem: Problem, store: Store, budget: Budget | None, progress: _Progress
    ) -> tuple[_Row, Stop | None]:
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

        def row(fault: str | None = None, excluded: bool = False) -> _Row:
            return _Row(Trajectory(problem.id, self.kind.name, model.name, tuple(turns)), fault, excluded)

        progress.begin(problem.id)
        try:
            if problem.id in self.evaluator.protocol.excluded:
                return row(excluded=True), None
            env = self._make_env(problem, RecordedEvaluator(self.evaluator, model))
            try:
                self.kind.make(model, self.settings).run(env, problem.id, on_turn)
            finally:
                env.close()
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
    costs = [cost for _, cost in spent]
    return Budget(
        arguments.max_cost,
        arguments.max_calls,
        spent_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        calls=sum(calls for calls, _ in spent),
    )


def _play_all(
    runs: Sequence[Run], stores: Sequence[Store], budget: Budget | None, progress: _Progress, lanes: int
) -> tuple[list[tuple[Run, list[_Row]]], Stop | None]:
    """Every run's rows, and what stopped the last of them; a stop ends those after it too."""
    from kbenv.store import StoreError

    progress.expect(sum(run.answers * len(run.model.problems) for run in runs))
    tables: list[tuple[Run, list[_Row]]] = []
    for this_run, store in zip(runs, stores, strict=True):
        if len(runs) > 1:
            progress.say(this_run.title)
        rows, stopped = this_run.play(store, budget, progress, lanes)
        tables.append((this_run, rows))
        try:
            _write_files(this_run, store)
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
    store.write_text("README.md", dataset_card(TRAJECTORIES))
    store.write_text(LEDGER, "".join(to_json(ledger_line(call)) for call in calls))


class _Progress:
    """A line for each judged answer, and below them a bar where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self._has_ended = False
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        # The description gives way first, so that the bar stays on one line of a narrow terminal.
        described = Column(no_wrap=True, overflow="ellipsis", ratio=3)
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False, table_column=described),
            BarColumn(bar_width=None, table_column=Column(ratio=2)),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._problem = self._phase = ""
        self._builds: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._bar.stop()

    def expect(self, answers: int) -> None:
        """So many answers at most."""
        self._bar.update(self._task, total=answers)

    def show_phase(self, phase: str) -> None:
        """What the judge is doing, beside the bar."""
        self._phase = phase
        builds = f"({', '.join(self._builds.values())})" if self._builds else ""
        self._bar.update(self._task, description=" ".join(filter(None, (self._problem, phase, builds))))

    def show_build(self, worker: str, doing: str) -> None:
        """What a build worker is doing, behind the judge's phase; a fault is a line of its own."""
        if doing.startswith("building"):
            self._builds = {**self._builds, worker: doing}
        else:
            self._builds = {name: other for name, other in self._builds.items() if name != worker}
        if doing.startswith("failed"):
            self.say(f"{worker} {doing}")
        self.show_phase(self._phase)

    def begin(self, problem: str) -> None:
        self._problem = problem
        self.show_phase("")

    def say(self, line: str) -> None:
        if self._has_ended:
            return  # what an interrupted lane still has to say
        self._console.print(line, markup=False, soft_wrap=True)

    def show(self, problem: str, turn: Turn, *, stored: bool, by_turn: bool) -> None:
        """One judged answer; `stored` when it was judged in an earlier run."""
        place = f"sample {turn.sample} turn {turn.index}" if by_turn else f"sample {turn.sample}"
        self.say(f"{problem} {place}: {_outcome(turn)}{' (from disk)' if stored else ''}")
        self._bar.advance(self._task)

    def finish_problem(self, needless: int) -> None:
        """Count the answers that an early end made needless."""
        self._bar.advance(self._task, max(0, needless))


def _outcome(turn: Turn) -> str:
    if turn.verdict is None:
        return "done"
    outcome = "" if turn.outcome == "answered" else f"({turn.outcome})"
    return " ".join(part for part in (turn.verdict.status.value, outcome, _speedup(turn, " ")) if part)


def _speedup(turn: Turn, separator: str) -> str:
    interval = turn.verdict.speedup if turn.verdict is not None else None
    if interval is None:
        return ""
    return f"{interval.value:.3g}x{separator}[{interval.low:.3g}, {interval.high:.3g}]"


def _print_table(console: Console, rows: Sequence[_Row]) -> None:
    """One line for each problem: its best turn, or where none is credited the one with the highest reward."""
    from rich.table import Table
    from rich.text import Text

    narrow = console.width < NARROW_COLUMNS
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("problem", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("ok", justify="right", no_wrap=True)
    table.add_column("speedup", no_wrap=True)
    table.add_column("mem", justify="right", no_wrap=True)
    table.add_column("reward", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row, "\n" if narrow else " ")))  # Text: a bracket is no markup
    console.print()
    console.print(table)


def _cells(row: _Row, separator: str) -> tuple[str, ...]:
    trajectory = row.trajectory
    judged = [turn for turn in trajectory.turns if turn.verdict is not None]
    credited = sum(turn.speedup is not None for turn in judged)
    ok = f"{credited}/{len(judged)}"
    shown = trajectory.best or max(judged, key=lambda turn: turn.reward, default=None)
    if row.excluded:
        return trajectory.problem, "EXCLUDED", "", "", "", ""
    if row.fault is not None or shown is None or shown.verdict is None:
        return trajectory.problem, "FAULT" if row.fault is not None else "-", ok, "", "", ""
    memory = shown.verdict.memory
    return (
        trajectory.problem,
        shown.verdict.status.value,
        ok,
        _speedup(shown, separator),
        "" if memory is None else f"{memory.ratio:.2f}",
        f"{shown.reward:.2f}",
    )


def _print_closing(console: Console, rows: Sequence[_Row], seconds: float, out: Path) -> None:
    turns = [turn for row in rows for turn in row.trajectory.turns]
    credited = sum(row.trajectory.best is not None for row in rows)
    tokens = sum((turn.prompt_tokens or 0) + (turn.completion_tokens or 0) for turn in turns)
    costs = [turn.cost_usd for turn in turns]
    cost = "cost unknown" if None in costs else f"${sum(cost or 0.0 for cost in costs):.4f}"
    parts = [
        f"credited {credited}/{len(rows)} problems",
        f"{len(turns)} answers{_outcomes(turns)}",
        f"{tokens:,} tokens",
        cost,
        f"{seconds:.0f} s",
    ]
    console.print()
    console.print("; ".join(parts), markup=False)
    console.print(f"trajectories in {out}", markup=False, soft_wrap=True)
    for row in rows:
        if row.fault is not None:
            console.print(f"fault: {row.trajectory.problem}: {row.fault}", markup=False)


def _outcomes(turns: Sequence[Turn]) -> str:
    """How many answers were none, in words; empty when there were none such."""
    words: dict[Outcome, str] = {
        "cut-off": "cut off at the token limit: see --max-tokens",
        "empty": "empty",
        "refused": "refused",
        "filtered": "stopped by the service's content filter",
    }
    counts = Counter(turn.outcome for turn in turns)
    found = [f"{counts[outcome]} {words[outcome]}" for outcome in words if counts[outcome]]
    return f" ({'; '.join(found)})" if found else ""


def _print_comparison(console: Console, tables: Sequence[tuple[Run, list[_Row]]]) -> None:
    """One line for each agent and model: the geometric mean of its best speedups, and what it took."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("agent", "model", "credited", "speedup", "answers", "tokens", "cost"):
        table.add_column(name, overflow="fold")
    for this_run, rows in tables:
        turns = [turn for row in rows for turn in row.trajectory.turns]
        best = [row.trajectory.best.speedup or 0.0 for row in rows if row.trajectory.best is not None]
        costs = [turn.cost_usd for turn in turns]
        tokens = sum((turn.prompt_tokens or 0) + (turn.completion_tokens or 0) for turn in turns)
        cells = (
            this_run.kind.name, this_run.model.name, f"{len(best)}/{len(rows)}",
            f"{math.prod(best) ** (1 / len(best)):.3g}x" if best else "", str(len(turns)), f"{tokens:,}",
            "unknown" if None in costs else f"${sum(cost or 0.0 for cost in costs):.4f}",
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print()
    console.print(table)


def _exit_code(rows: Sequence[_Row], stopped: Stop | None) -> int:
    from kbenv.agents.model import BudgetSpentError

    if any(row.fault is not None for row in rows):
        return EXIT_FAULT
    if stopped is not None:
        return EXIT_BUDGET if isinstance(stopped, BudgetSpentError) else EXIT_FAULT
    return EXIT_DONE
