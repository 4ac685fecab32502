"""`kbenv problems`: which problems there are, the source of one, and what their references are like."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbenv.cli.audit import add_audit_parser
from kbenv.cli.table import print_table
from kbenv.problems import Problem, list_problems, load_problem


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv problems list`, `show` and `audit`."""
    parser = subparsers.add_parser("problems", help="list, show or audit problems", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="list problems by id")
    listing.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="ids with wildcards, separated by commas: 'core/*', 'core/level1/*,kernelbench/level1/19' (default: all)",
    )
    _add_problems_dir(listing)
    listing.add_argument("--json", action="store_true", help="print a JSON array, one object a problem")
    listing.set_defaults(func=_list)

    show = commands.add_parser("show", help="print a problem's source")
    show.add_argument("id", metavar="ID", help="an id such as core/level1/relu, or a file's path")
    _add_problems_dir(show)
    show.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda", help="whose sizes to put in place (default: %(default)s)"
    )
    show.set_defaults(func=_show)
    add_audit_parser(commands)


def _add_problems_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problems-dir",
        type=Path,
        metavar="DIR",
        help="a KernelBench checkout (default: the environment variable KBENV_KERNELBENCH)",
    )


def _list(arguments: argparse.Namespace) -> int:
    problems = list_problems(arguments.pattern, problems_dir=arguments.problems_dir)
    if arguments.json:
        print(json.dumps([_describe(problem) for problem in problems], indent=2))
    else:
        print_table(("ID", "NAME"), [(problem.id, problem.name) for problem in problems])
    return 0


def _describe(problem: Problem) -> dict[str, object]:
    return {
        "id": problem.id,
        "name": problem.name,
        "level": problem.level,
        "sizes": {device: dict(sizes) for device, sizes in problem.sizes.items()},
        "dropped": dict(problem.dropped),
        "path": None if problem.path is None else str(problem.path),
    }


def _show(arguments: argparse.Namespace) -> int:
    problem = load_problem(arguments.id, problems_dir=arguments.problems_dir)
    source = problem.source_for(arguments.device)
    sys.stdout.write(source if source.endswith("\n") else source + "\n")
    return 0
