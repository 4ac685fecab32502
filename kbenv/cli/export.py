"""`kbenv export`: the turns of runs as lines of JSON, for datasets and for trainers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kbenv.errors import UsageError

FORMATS = ("turns", "sft", "preferences", "ledger")
_FOR_TRAINING = ("sft", "preferences")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the `export` subcommand."""
    parser = subparsers.add_parser(
        "export",
        help="turn runs into datasets",
        description="Write the turns of runs as lines of JSON: all of them (turns), credited conversations for "
        "supervised fine-tuning (sft), pairs of a better and a worse answer (preferences), or every call with what it "
        "took (ledger). docs/trajectory.md describes the fields.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a directory that `kbenv run` wrote")
    parser.add_argument("--format", choices=FORMATS, default="turns", help="default: turns")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    parser.add_argument("--min-speedup", type=float, metavar="X", help="sft: leave out slower answers")
    parser.add_argument("--best-only", action="store_true", help="sft: of each problem the fastest answer alone")
    parser.add_argument(
        "--same", choices=("conversation", "task"), default="conversation",
        help="preferences: pair answers to equal conversations (default), or the code of all answers to one problem",
    )  # fmt: skip
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the lines and returns the exit code.

    Raises:
        UsageError: there is no run there, a file of it is damaged, or --out cannot be written.
        TrainingForbiddenError: the format is for training, and the licences of all that was run restrict it.
    """
    from kbenv.trajectory import to_json

    text = [to_json(line) for line in _lines(arguments)]
    if arguments.out is None:
        sys.stdout.writelines(text)
        return 0
    try:
        arguments.out.write_text("".join(text), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {arguments.out}: {error.strerror}; choose another --out") from error
    print(f"{len(text)} lines in {arguments.out}", file=sys.stderr)
    return 0


def _lines(arguments: argparse.Namespace) -> Iterable[Any]:
    from kbenv.store import StoredTurn
    from kbenv.trajectory import ledger_line, to_preferences, to_sft, turn_line

    if arguments.min_speedup is not None and not arguments.min_speedup > 0:
        raise UsageError(f"--min-speedup must be above 0; found {arguments.min_speedup}")
    calls = list(_calls(arguments.runs))
    if arguments.format == "ledger":
        return [ledger_line(call) for call, _ in calls]
    lines = [turn_line(call, agent) for call, agent in calls if isinstance(call, StoredTurn)]
    if arguments.format in _FOR_TRAINING:
        lines = _leave_out_forbidden(lines)
    if arguments.format == "sft":
        return to_sft(lines, min_speedup=arguments.min_speedup, best_only=arguments.best_only)
    if arguments.format == "preferences":
        return to_preferences(lines, same=arguments.same)
    return lines


def _leave_out_forbidden(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that may be trained on; what else there is is said on standard error.

    Raises:
        TrainingForbiddenError: there are others alone.
    """
    from kbenv.problems import check_training, may_train

    kept = [line for line in lines if may_train(line["problem"])]
    forbidden = sorted({line["problem"] for line in lines} - {line["problem"] for line in kept})
    if forbidden and not kept:
        check_training(forbidden[0])
    if forbidden:
        print(
            f"kbenv: {len(lines) - len(kept)} turns are left out: the licences of their sets restrict training on "
            f"them ({', '.join(forbidden)})",
            file=sys.stderr,
        )
    return kept


def _calls(runs: Iterable[Path]) -> Iterator[tuple[Any, str]]:
    """Every call with the name of its agent; a directory may hold one run or several in folders."""
    from kbenv.store import find_runs, read_calls, read_run

    for directory in runs:
        for folder in find_runs(directory):
            agent = str(read_run(folder).config.get("agent"))
            for call in read_calls(folder):
                yield call, agent
