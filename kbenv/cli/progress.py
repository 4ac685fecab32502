"""What `kbenv run` shows while it works: a line for each judged answer, and a bar."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.agents import Turn


class Progress:
    """A line for each judged answer, and below them a bar where there is a terminal."""

    def __init__(self, console: Console) -> None:
        import rich.progress
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._has_ended = False
        # The description gives way first, so that the bar stays on one line of a narrow terminal.
        described = Column(no_wrap=True, overflow="ellipsis", ratio=3)
        self._console = console
        self._bar = rich.progress.Progress(
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
        self.say(f"{problem} {place}: {outcome_of(turn)}{' (from disk)' if stored else ''}")
        self._bar.advance(self._task)

    def finish_problem(self, needless: int) -> None:
        """Count the answers that an early end made needless."""
        self._bar.advance(self._task, max(0, needless))


def outcome_of(turn: Turn) -> str:
    """What became of an answer, in words for a line."""
    if turn.verdict is None:
        return "done"
    outcome = "" if turn.outcome == "answered" else f"({turn.outcome})"
    return " ".join(part for part in (turn.verdict.status.value, outcome, speedup_of(turn, " ")) if part)


def speedup_of(turn: Turn, separator: str) -> str:
    """With its interval; empty where there is none."""
    interval = turn.verdict.speedup if turn.verdict is not None else None
    if interval is None:
        return ""
    return f"{interval.value:.3g}x{separator}[{interval.low:.3g}, {interval.high:.3g}]"
