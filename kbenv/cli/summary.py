"""What `kbenv run` prints at its end: a line for each problem, what it took, and agents side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbenv.cli.progress import speedup_of

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.agents import Outcome, Trajectory, Turn
    from kbenv.store import Spent

NARROW_COLUMNS = 76


@dataclass(frozen=True)
class Row:
    """One problem of the run: the turns that were judged, and the fault that ended them, if one did."""

    trajectory: Trajectory
    fault: str | None = None
    excluded: bool = False


def print_table(console: Console, rows: Sequence[Row]) -> None:
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


def _cells(row: Row, separator: str) -> tuple[str, ...]:
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
        speedup_of(shown, separator),
        "" if memory is None else f"{memory.ratio:.2f}",
        f"{shown.reward:.2f}",
    )


def print_closing(console: Console, rows: Sequence[Row], spent: Sequence[Spent], seconds: float, out: Path) -> None:
    """The totals. What was `spent` is that of every call, of summaries and reviews too."""
    turns = [turn for row in rows for turn in row.trajectory.turns]
    credited = sum(row.trajectory.best is not None for row in rows)
    calls, costs = sum(item.calls for item in spent), [item.cost_usd for item in spent]
    parts = [
        f"credited {credited}/{len(rows)} problems",
        f"{len(turns)} answers{_outcomes(turns)}",
        *([f"{calls} calls"] if calls > len(turns) else []),
        f"{sum(item.tokens for item in spent):,} tokens",
        "cost unknown" if None in costs else f"${sum(cost or 0.0 for cost in costs):.4f}",
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


@dataclass(frozen=True)
class Played:
    """One agent with one model: a row for each problem, and what its calls have taken."""

    agent: str
    model: str
    rows: Sequence[Row]
    spent: Spent


def print_comparison(console: Console, runs: Sequence[Played]) -> None:
    """One line for each agent and model: the geometric mean of its best speedups, and what it took."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("agent", "model", "credited", "speedup", "answers", "calls", "tokens", "cost"):
        table.add_column(name, overflow="fold")
    for played in runs:
        rows, spent = played.rows, played.spent
        best = [row.trajectory.best.speedup or 0.0 for row in rows if row.trajectory.best is not None]
        cells = (
            played.agent, played.model, f"{len(best)}/{len(rows)}",
            f"{math.prod(best) ** (1 / len(best)):.3g}x" if best else "",
            str(sum(len(row.trajectory.turns) for row in rows)), str(spent.calls), f"{spent.tokens:,}",
            "unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}",
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print()
    console.print(table)
