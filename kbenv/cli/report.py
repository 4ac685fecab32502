"""`kbenv report`: the numbers of a whole run, from the verdicts on its disk; `kbenv run` prints the same at its end."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from kbenv.errors import SandboxError, UsageError
from kbenv.metrics import (
    Corrected,
    Decomposition,
    Number,
    Solved,
    Summary,
    decompose,
    merge_turns,
    read_sample,
    summarise,
    summarise_groups,
)

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.baseline import Baseline
    from kbenv.problems.problem import Problem
    from kbenv.store import StoredTurn
    from kbenv.verdict import Verdict

_LEVEL = re.compile(r"(?:^|/)level(\d+)/")
Attempts = Mapping[str, Mapping[int, "list[Verdict]"]]
"""Verdicts by problem and sample, in the order of turns."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv report`."""
    parser = subparsers.add_parser(
        "report",
        help="the numbers of a whole run",
        description="Print fast_p, pass@k, mean speedup, memory and their intervals over problems, in all, by level "
        "and by category, from the verdicts of a run. How each is defined: docs/metrics.md.",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="a directory of `kbenv run` (of one agent or several) or `kbenv rejudge`"
    )
    parser.add_argument(
        "--standard", type=Path, metavar="RUN",
        help="a run of the same answers under --protocol kernelbench: shows what hidden checks and TF32 take away",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="of `kbenv baseline` on the same machine: shows what TF32 takes away, without another run",
    )  # fmt: skip
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument(
        "--json", metavar="PATH", help="write the numbers as JSON (of several runs a list); - for standard output alone"
    )
    parser.set_defaults(func=run)


class Report(BaseModel):
    """The numbers of one run.

    Attributes:
        whole: None when nothing was judged.
        unjudged: problems of which no answer has a verdict: in no number.
        devices: names of the devices that the verdicts are of; several are not comparable.
    """

    model_config = ConfigDict(frozen=True)

    run: str
    protocols: tuple[str, ...]
    devices: tuple[str, ...]
    unjudged: tuple[str, ...]
    whole: Summary | None
    levels: dict[int, Summary]
    categories: dict[str, Summary]
    decomposition: Decomposition | None = None


def run(arguments: argparse.Namespace) -> int:
    """Prints the report and returns 0.

    Raises:
        UsageError: there is no run, or another argument is no good.
    """
    from rich.console import Console

    from kbenv.store import find_runs

    if arguments.standard is not None and arguments.baseline is not None:
        raise UsageError("give --standard or --baseline, not both: they are two ways to the same decomposition")
    folders = find_runs(arguments.run)
    if len(folders) > 1 and arguments.standard is not None:
        names = ", ".join(folder.name for folder in folders)
        raise UsageError(f"--standard goes with one run; {arguments.run} holds {names}: name one of them")
    more = {"standard": arguments.standard, "baseline": arguments.baseline, "problems_dir": arguments.problems_dir}
    reports = [read_report(folder, **more) for folder in folders]
    console = Console(highlight=False)
    for report in reports if arguments.json != "-" else ():
        if len(reports) > 1:
            console.print(f"\n{report.run}", markup=False, soft_wrap=True)
        print_report(console, report)
    data = [report.model_dump(mode="json") for report in reports]
    text = json.dumps(data if folders != [arguments.run] else data[0], indent=2) + "\n"
    if arguments.json == "-":
        sys.stdout.write(text)
    elif arguments.json is not None:
        try:
            Path(arguments.json).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SandboxError(f"the report could not be written to {arguments.json}: {error.strerror}") from error
    return 0


def read_report(
    directory: Path, *, standard: Path | None = None, baseline: Path | None = None, problems_dir: Path | None = None
) -> Report:
    """The numbers of the run in `directory`.

    Raises:
        UsageError: there is no run, a file is damaged, or the baselines are of another machine.
    """
    from kbenv.baseline import read_table
    from kbenv.store import read_run, read_turns

    read_run(directory)
    attempts, unjudged = collect(read_turns(directory))
    corrected: list[Corrected] = []
    if standard is not None:
        read_run(standard)
        corrected = correct_by_run(solve(collect(read_turns(standard))[0], {}), solve(attempts, {}))
    elif baseline is not None:
        corrected = correct_by_baseline(attempts, read_table(baseline))
    return make_report(str(directory), attempts, unjudged, _at_hand(attempts, problems_dir), corrected)


def make_report(
    name: str,
    attempts: Attempts,
    unjudged: Sequence[str],
    sources: Mapping[str, Problem],
    corrected: Sequence[Corrected] = (),
) -> Report:
    """The numbers of verdicts by problem and sample; `sources` are the problems that are at hand."""
    problems = solve(attempts, sources)
    verdicts = [verdict for samples in attempts.values() for turns in samples.values() for verdict in turns]
    return Report(
        run=name,
        protocols=tuple(sorted({f"{v.protocol.name}, {v.protocol.precision}" for v in verdicts})),
        devices=tuple(sorted({v.hardware.name for v in verdicts if v.hardware is not None})),
        unjudged=tuple(unjudged),
        whole=summarise(problems) if problems else None,
        levels=dict(summarise_groups(problems, lambda solved: solved.level)),
        categories=dict(summarise_groups(problems, lambda solved: solved.category)),
        decomposition=decompose(corrected) if corrected else None,
    )


def collect(turns: Iterable[StoredTurn]) -> tuple[Attempts, list[str]]:
    """The verdicts of a run, and the problems that have none."""
    attempts: dict[str, dict[int, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[str, None] = {}
    for turn in turns:
        seen[turn.problem] = None
        if turn.verdict is not None:
            attempts[turn.problem][turn.sample].append(turn.verdict)
    return attempts, [problem for problem in seen if problem not in attempts]


def _at_hand(names: Iterable[str], problems_dir: Path | None) -> dict[str, Problem]:
    """Those problems whose set is here."""
    from kbenv.problems import load_problem

    found = {}
    for name in names:
        with contextlib.suppress(UsageError):  # a set that is not here, or a file that is gone
            found[name] = load_problem(name, problems_dir=problems_dir)
    return found


def solve(attempts: Attempts, sources: Mapping[str, Problem]) -> list[Solved]:
    """Each problem's samples, with its level, and its category where its source is at hand."""
    from kbenv.category import categorise

    found = []
    for problem, samples in attempts.items():
        level = _LEVEL.search(problem)
        merged = tuple(merge_turns([read_sample(verdict) for verdict in turns]) for turns in samples.values())
        source = sources.get(problem)
        category = None if source is None else source.category or categorise(source.source)
        found.append(Solved(problem, merged, int(level[1]) if level else None, category))
    return found


def correct_by_run(standard: Sequence[Solved], strict: Sequence[Solved]) -> list[Corrected]:
    """The decomposition of two runs of the same answers: `standard` under lenient rules and PyTorch's default baseline.

    "hidden" is the fastest sample by that baseline among those that the strict rules credit.
    """
    by_problem = {solved.problem: solved for solved in standard}
    found = []
    for solved in strict:
        lenient = by_problem.get(solved.problem)
        if lenient is None or len(lenient.samples) != len(solved.samples):
            continue  # not the same answers
        kept = [a.speedup for a, b in zip(lenient.samples, solved.samples, strict=True) if b.correct and a.speedup]
        best = lenient.best
        found.append(Corrected(best.correct, best.speedup, max(kept, default=None), solved.best.speedup))
    return found


def correct_by_baseline(attempts: Attempts, baselines: Mapping[str, Baseline]) -> list[Corrected]:
    """The decomposition of one run by the latency under PyTorch's defaults. What fails hidden checks was never timed.

    Raises:
        UsageError: the baselines lack that variant, or are of another machine.
    """
    from kbenv.baseline import speedup_against

    if baselines and all(one.latency_ms("eager-default") is None for one in baselines.values()):
        raise UsageError("the baselines hold no eager-default: measure it too, with `kbenv baseline`")

    found = []
    for problem, samples in attempts.items():
        if problem not in baselines:
            continue
        verdicts = [verdict for turns in samples.values() for verdict in turns]
        default = [speedup_against(verdict, baselines[problem], "eager-default") for verdict in verdicts]
        hidden = max((speedup for speedup in default if speedup is not None), default=None)
        own = max((sample.speedup for sample in map(read_sample, verdicts) if sample.speedup), default=None)
        right = any(read_sample(verdict).standard for verdict in verdicts)
        found.append(Corrected(right, hidden, hidden, own))
    return found


# -- for people -------------------------------------------------------------------------------------------------------


def print_report(console: Console, report: Report) -> None:
    """Two tables: metrics in all and by level, and a few of them by category; and the decomposition if there is one."""
    from rich.table import Table
    from rich.text import Text

    if report.whole is None:
        return

    def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for index, header in enumerate(headers):
            made.add_column(header, justify="left" if index == 0 else "right", overflow="fold")
        for row in rows:
            made.add_row(*(Text(cell) for cell in row))
        console.print()
        console.print(made)

    columns = {"all": report.whole, **{f"level {level}": summary for level, summary in report.levels.items()}}
    table(("", *columns), _metric_rows(list(columns.values())))
    if len(report.categories) > 1:
        rows = [
            (name, str(one.problems), _share(one.correct), _share(one.fast["1"]), _times(one.speedup))
            for name, one in report.categories.items()
        ]
        table(("category", "problems", "correct", "fast_1", "speedup"), rows)
    if report.decomposition is not None:
        names = {"standard": "default, standard", "hidden": "default, hidden", "tf32": "TF32, hidden"}
        steps = [
            (names[name], _share(step.correct), _share(step.faster), _times(step.speedup))
            for name, step in report.decomposition.steps.items()
        ]
        table(("baseline, checks", "correct", "fast_1", "speedup"), steps)
        hidden, tf32 = report.decomposition.reach_hidden, report.decomposition.reach_tf32
        problems = report.decomposition.problems
        console.print(f"of {problems} problems the hidden checks reach {hidden:.1%}, TF32 {tf32:.1%}")
    if len(report.devices) > 1:
        console.print(f"verdicts of several devices, which do not compare: {', '.join(report.devices)}", markup=False)
    if report.unjudged:
        console.print(f"without a verdict, in no number: {', '.join(report.unjudged)}", markup=False)


def _metric_rows(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """A row a metric; the first summary's numbers with their intervals, which take room, the others' without."""

    def row(label: str, show: Callable[[Number | None, bool], str], numbers: Sequence[Number | None]) -> None:
        rows.append((label, *(show(number, index == 0) for index, number in enumerate(numbers))))

    first = summaries[0]
    rows: list[tuple[str, ...]] = [("problems", *(str(one.problems) for one in summaries))]
    rows.append(("samples", *(str(one.samples) for one in summaries)))
    row("correct", _share, [one.correct for one in summaries])
    row("right on standard trials", _share, [one.standard for one in summaries])
    for p in first.fast:
        if float(p) > 0:
            row(f"fast_{p}", _share, [one.fast[p] for one in summaries])
    for k in first.pass_at:
        row(f"pass@{k}", _share, [one.pass_at.get(k) for one in summaries])
    for k in first.fast_at:
        row(f"fast_1@{k}", _share, [one.fast_at.get(k) for one in summaries])
    row("speedup, correct ones", _times, [one.speedup for one in summaries])
    row("speedup, all (else 1)", _times, [one.speedup_of_all for one in summaries])
    row("memory, reference/kernel", _times, [one.memory for one in summaries])
    row("needs more memory", _share, [one.raises_memory for one in summaries])
    return rows


def _share(number: Number | None, with_bounds: bool = False) -> str:
    if number is None:
        return "-"
    known = with_bounds and number.low is not None and number.high is not None
    return f"{number.value:.1%}" + (f" [{number.low:.0%}, {number.high:.0%}]" if known else "")


def _times(number: Number | None, with_bounds: bool = False) -> str:
    if number is None:
        return "-"
    known = with_bounds and number.low is not None and number.high is not None
    return f"{number.value:.2f}x" + (f" [{number.low:.2f}, {number.high:.2f}]" if known else "")
