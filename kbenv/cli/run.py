"""`kbenv run`: an agent on many problems, every answer and verdict on disk, and a table at the end.

Run again with the same options it goes on where it stopped, and asks and judges nothing twice.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbenv.cli.judging import add_devices_option, add_judging_options, open_pool
from kbenv.cli.lanes import in_lanes
from kbenv.cli.report import print_report, read_report
from kbenv.errors import ModelError, SandboxError, UsageError
from kbenv.reward import DEFAULT_REWARD, REWARDS

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.agents import Agent, Model, TextEnv, Trajectory, Turn
    from kbenv.agents.recording import RecordedEvaluator, RecordedModel
    from kbenv.pool import EvaluatorPool
    from kbenv.problems.problem import Problem
    from kbenv.protocol import Protocol
    from kbenv.store import Store

EXIT_DONE = 0
EXIT_BUDGET = 1
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130

REPLAY_PREFIX = "replay:"
SHIPPED_REPLAY = Path("examples") / "replay"
DEFAULT_SAMPLES = {"single-shot": 5, "multi-turn": 1}
NARROW_COLUMNS = 76

OpenModel = Callable[[str], "Model"]
Stop = ModelError | OSError
"""What ends a run early: the model (or its budget), or a disk that takes nothing more."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="let an agent loose on problems",
        description="Let an agent answer problems, judge every answer, and keep all of it in a directory. Interrupted "
        "(Ctrl-C) or stopped, it goes on where it was when run again with the same options.",
        epilog="Exit codes: 0 the run is complete, whatever the verdicts; 1 the budget is spent; 2 bad usage; "
        "3 a fault of the machine, of kbenv or of the model's service.",
    )
    parser.add_argument("--agent", choices=tuple(DEFAULT_SAMPLES), default="single-shot")
    parser.add_argument("--turns", type=int, metavar="T", help="multi-turn: most answers of a sample (default: 10)")
    add_asking_options(parser)
    add_judging_options(parser)
    add_devices_option(parser)
    parser.set_defaults(func=run)


def add_asking_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is asked, of which model, and where it is kept."""
    parser.add_argument(
        "--model", required=True, metavar="NAME",
        help="a litellm model name such as openai/gpt-4o (its key from the environment), or replay:DIR for recorded "
        f"answers (replay: alone for those in {SHIPPED_REPLAY})",
    )  # fmt: skip
    parser.add_argument(
        "-n", type=int, metavar="N",
        help="independent samples a problem (default: 5 for single-shot, 1 for multi-turn)",
    )  # fmt: skip
    parser.add_argument("--problems", required=True, metavar="PATTERN", help="such as 'core/*' or 'core/level1/relu'")
    parser.add_argument("--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the run is kept")
    parser.add_argument("--reward", choices=tuple(REWARDS), default=DEFAULT_REWARD)
    parser.add_argument("--temperature", type=float, metavar="X", help="default: the provider's")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of an answer; default: the provider's")
    parser.add_argument(
        "--max-cost", type=float, metavar="USD", help="ask nothing more once the answers have cost this much"
    )
    parser.add_argument(
        "--parallel", type=int, metavar="N",
        help="problems at work at once (default: 1; with --devices twice their number)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing was asked and nothing judged.
        SandboxError: the evaluator could not be started.
    """
    from rich.console import Console

    from kbenv.problems import list_problems
    from kbenv.store import Store

    check_numbers(arguments)
    problems = list_problems(arguments.problems, problems_dir=arguments.problems_dir)
    problems, open_model = choose_model(arguments, problems)
    console = Console(highlight=False)
    started = time.monotonic()
    progress = _Progress(console, len(problems) * _answers(arguments), by_turn=arguments.turns > 1)
    with open_pool(arguments, progress.show_phase) as pool:
        store = Store(arguments.out, make_config(arguments, pool.protocol, pool.device))
        this_run = _Run(arguments, pool, store, within_budget(arguments, store, open_model))
        lanes = arguments.parallel or (1 if arguments.devices is None else 2 * len(pool.devices))
        try:
            with progress:
                rows, stopped = this_run.play(problems, progress, lanes)
        except KeyboardInterrupt:
            print("kbenv: interrupted; run the same command again to go on", file=sys.stderr)
            return EXIT_INTERRUPTED
    _print_table(console, rows)
    print_report(console, read_report(arguments.out, problems_dir=arguments.problems_dir))
    _print_closing(console, rows, time.monotonic() - started, arguments.out)
    return _exit_code(rows, stopped)


@dataclass(frozen=True)
class _Row:
    """One problem of the run: the turns that were judged, and the fault that ended them, if one did."""

    trajectory: Trajectory
    fault: str | None = None
    excluded: bool = False


@dataclass(frozen=True)
class _Run:
    """What all problems of a run share."""

    arguments: argparse.Namespace
    evaluator: EvaluatorPool
    store: Store
    open_model: OpenModel

    def play(self, problems: Sequence[Problem], progress: _Progress, lanes: int) -> tuple[list[_Row], Stop | None]:
        """A row for each problem that was played, and what stopped the run before its end, if something did."""
        stops: list[Stop] = []

        def work(problem: Problem) -> _Row | None:
            if stops:
                return None
            row, stop = self._play_one(problem, progress)
            if stop is not None:
                stops.append(stop)
            return row

        rows = {problem.id: row for problem, row in in_lanes(problems, work, lanes)}
        if stops:
            print(f"kbenv: {stops[0]}", file=sys.stderr)
        played = [row for problem in problems if (row := rows[problem.id]) is not None]
        return played, stops[0] if stops else None

    def _play_one(self, problem: Problem, progress: _Progress) -> tuple[_Row, Stop | None]:
        from kbenv.agents import Trajectory
        from kbenv.agents.recording import RecordedEvaluator, RecordedModel
        from kbenv.store import StoreError

        progress.begin(problem.id)
        name, model = self.arguments.agent, RecordedModel(self.open_model(problem.id), self.store, problem.id)
        turns: list[Turn] = []

        def on_turn(turn: Turn) -> None:
            new = model.finish(turn)
            turns.append(turn)
            progress.show(problem.id, turn, stored=not new)

        def row(fault: str | None = None, excluded: bool = False) -> _Row:
            progress.skip(_answers(self.arguments) - len(turns))
            return _Row(Trajectory(problem.id, name, model.name, tuple(turns)), fault, excluded)

        if problem.id in self.evaluator.protocol.excluded:
            return row(excluded=True), None
        env = _make_env(self.arguments, problem, RecordedEvaluator(self.evaluator, model))
        try:
            _make_agent(self.arguments, model).run(env, problem.id, on_turn)
        except SandboxError as error:
            progress.say(f"{problem.id}: fault: {error}")
            return row(fault=str(error)), None
        except (ModelError, StoreError) as error:
            return row(), error
        finally:
            env.close()
        return row(), None


def check_numbers(arguments: argparse.Namespace) -> None:
    """Raises UsageError; puts the defaults of -n and --turns in place."""
    numbers = {
        "-n": arguments.n, "--turns": arguments.turns, "--max-tokens": arguments.max_tokens,
        "--parallel": arguments.parallel,
    }  # fmt: skip
    for option, value in numbers.items():
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1; found {value}")
    if arguments.turns is not None and arguments.agent != "multi-turn":
        raise UsageError("--turns belongs to --agent multi-turn; a single shot has one")
    if arguments.max_cost is not None and not arguments.max_cost > 0:
        raise UsageError(f"--max-cost must be above 0; found {arguments.max_cost}")
    arguments.n = arguments.n or DEFAULT_SAMPLES[arguments.agent]
    arguments.turns = arguments.turns or (10 if arguments.agent == "multi-turn" else 1)


def _answers(arguments: argparse.Namespace) -> int:
    """Most answers to one problem."""
    return int(arguments.n * arguments.turns)


def choose_model(arguments: argparse.Namespace, problems: list[Problem]) -> tuple[list[Problem], OpenModel]:
    """The problems that the model can be asked about, and what opens it for one of them."""
    name: str = arguments.model
    if not name.startswith(REPLAY_PREFIX):
        return problems, _open_litellm(arguments)
    from kbenv.agents.replay import has_replay, load_replay

    directory = _replay_directory(name.removeprefix(REPLAY_PREFIX))
    answered = [problem for problem in problems if has_replay(directory, problem.id)]
    if not answered:
        raise UsageError(f"{directory} has recorded answers to none of the {len(problems)} problems asked for")
    if len(answered) < len(problems):
        without = ", ".join(problem.id for problem in problems if problem not in answered)
        print(f"kbenv: no recorded answers, left out: {without}", file=sys.stderr)
    models: dict[str, Model] = {problem.id: load_replay(directory, problem.id, name) for problem in answered}
    return answered, models.__getitem__


def _open_litellm(arguments: argparse.Namespace) -> OpenModel:
    from kbenv.agents.model import LitellmModel

    model = LitellmModel(arguments.model, temperature=arguments.temperature, max_tokens=arguments.max_tokens)
    if arguments.max_cost is not None and not model.knows_price():
        raise UsageError(
            f"litellm has no price for {arguments.model}, so that --max-cost could not be kept; leave it out"
        )
    return lambda problem: model


def _replay_directory(text: str) -> Path:
    if text:
        if not Path(text).is_dir():
            raise UsageError(f"expected a directory of recorded answers after {REPLAY_PREFIX}; {text} is none")
        return Path(text)
    shipped = [SHIPPED_REPLAY, Path(__file__).resolve().parents[2] / SHIPPED_REPLAY]
    for directory in shipped:
        if directory.is_dir():
            return directory
    raise UsageError(
        f"{REPLAY_PREFIX} alone means {SHIPPED_REPLAY} of a checkout, which is not there; name a directory"
    )


def within_budget(arguments: argparse.Namespace, store: Store, open_model: OpenModel) -> OpenModel:
    """`open_model`, with all that it opens under one budget when there is one."""
    if arguments.max_cost is None:
        return open_model
    from kbenv.agents.model import Budget, BudgetedModel

    budget = Budget(arguments.max_cost, spent_usd=store.cost_usd())
    return lambda problem: BudgetedModel(open_model(problem), budget)


def make_config(arguments: argparse.Namespace, protocol: Protocol, device: str) -> dict[str, Any]:
    """What a run must have in common with itself when it goes on; the budget and the number of devices may change."""
    from kbenv.prompts import render

    keys = (
        "agent", "model", "n", "turns", "problems", "protocol", "precision", "sandbox", "backend",
        "require_custom_kernel", "reward", "temperature", "max_tokens",
    )  # fmt: skip
    return {
        **{key: getattr(arguments, key) for key in keys},
        "problems_dir": None if arguments.problems_dir is None else str(arguments.problems_dir),
        "device": device.split(":")[0],
        "rules": protocol.model_dump(mode="json"),
        "system": render("system.j2", turns=arguments.turns),
    }


def _make_agent(arguments: argparse.Namespace, model: RecordedModel) -> Agent:
    from kbenv.agents.multi_turn import MultiTurn
    from kbenv.agents.single_shot import SingleShot

    if arguments.agent == "single-shot":
        return SingleShot(model, n=arguments.n)
    return MultiTurn(model, turns=arguments.turns, n=arguments.n)


def _make_env(arguments: argparse.Namespace, problem: Problem, evaluator: RecordedEvaluator) -> TextEnv:
    from kbenv.env import MultiTurnEnv, SingleTurnEnv

    if arguments.agent == "single-shot":
        return SingleTurnEnv(problem, evaluator=evaluator, reward=arguments.reward)
    return MultiTurnEnv(problem, max_turns=arguments.turns, evaluator=evaluator, reward=arguments.reward)


class _Progress:
    """A line for each judged answer, and below them a bar where there is a terminal."""

    def __init__(self, console: Console, answers: int, by_turn: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        # The description gives way first, so that the bar stays on one line of a narrow terminal.
        described = Column(no_wrap=True, overflow="ellipsis", ratio=3)
        self._console = console
        self._by_turn = by_turn
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
        self._task = self._bar.add_task("starting", total=answers)
        self._problem = ""
        self._has_ended = False

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._bar.stop()

    def show_phase(self, phase: str) -> None:
        """What the judge is doing, beside the bar."""
        self._bar.update(self._task, description=f"{self._problem} {phase}".strip())

    def begin(self, problem: str) -> None:
        self._problem = problem
        self.show_phase("")

    def say(self, line: str) -> None:
        if self._has_ended:
            return  # what an interrupted lane still has to say
        self._console.print(line, markup=False, soft_wrap=True)

    def show(self, problem: str, turn: Turn, stored: bool) -> None:
        """One judged answer; `stored` when it was judged in an earlier run."""
        place = f"sample {turn.sample} turn {turn.index}" if self._by_turn else f"sample {turn.sample}"
        self.say(f"{problem} {place}: {_outcome(turn)}{' (from disk)' if stored else ''}")
        self._bar.advance(self._task)

    def skip(self, answers: int) -> None:
        """Count the answers that an end, early or not, has made needless."""
        self._bar.advance(self._task, answers)


def _outcome(turn: Turn) -> str:
    if turn.verdict is None:
        return "done"
    return " ".join(part for part in (turn.verdict.status.value, _speedup(turn, " ")) if part)


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
    cut = sum(turn.finish_reason == "length" for turn in turns)
    parts = [
        f"credited {credited}/{len(rows)} problems",
        f"{len(turns)} answers" + (f" ({cut} cut off at the token limit: see --max-tokens)" if cut else ""),
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


def _exit_code(rows: Sequence[_Row], stopped: Stop | None) -> int:
    from kbenv.agents.model import BudgetSpentError

    if any(row.fault is not None for row in rows):
        return EXIT_FAULT
    if stopped is not None:
        return EXIT_BUDGET if isinstance(stopped, BudgetSpentError) else EXIT_FAULT
    return EXIT_DONE
