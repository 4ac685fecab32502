"""`kbenv problems`: which problems there are, the source of one, what a set is, and what references are like."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kbenv.cli.audit import add_audit_parser
from kbenv.cli.judging import find_problems
from kbenv.cli.table import print_table
from kbenv.problems import Problem, import_problems, load_problem

EXIT_REFUSED = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv problems list`, `show`, `import` and `audit`."""
    parser = subparsers.add_parser("problems", help="list, show, import or audit problems", description=__doc__)
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
    show.add_argument(
        "--view",
        choices=("full", "blind", "prompt"),
        default="full",
        help="the whole source (default), without how inputs are drawn, or what a prompt shows",
    )
    show.set_defaults(func=_show)

    importing = commands.add_parser(
        "import",
        help="say what a checkout, folder or file of problems is, and load all of it",
        description="Say which format a checkout, a folder or a file is in, load every problem in it, and tell what is "
        "judged and what is not. Nothing in it is executed. To use a set by its ids put its folder into "
        "KBENV_PROBLEM_SETS, or give --problems-dir.",
        epilog="Exit codes: 0 everything loads; 1 something does not (standard error says why); 2 no known format.",
    )
    importing.add_argument("path", type=Path, metavar="PATH")
    importing.add_argument("--json", action="store_true", help="print a JSON array, one object a problem")
    importing.set_defaults(func=_import)
    add_audit_parser(commands)


def _add_problems_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problems-dir",
        type=Path,
        metavar="DIR",
        help="a checkout of a known set (default: $KBENV_KERNELBENCH, a KernelBench checkout, and $KBENV_PROBLEM_SETS)",
    )


def _list(arguments: argparse.Namespace) -> int:
    problems = find_problems(arguments, arguments.pattern)
    if arguments.json:
        print(json.dumps([_describe(problem) for problem in problems], indent=2))
    else:
        print_table(("ID", "NAME"), [(problem.id, problem.name) for problem in problems])
    return 0


def _describe(problem: Problem) -> dict[str, object]:
    contract, origin = problem.contract, problem.origin
    return {
        "id": problem.id,
        "name": problem.name,
        "level": problem.level,
        "category": problem.category,
        "tags": list(problem.tags),
        "sizes": {device: dict(sizes) for device, sizes in problem.sizes.items()},
        "dropped": dict(problem.dropped),
        "origin": None if origin is None else asdict(origin),
        "same_as": problem.same_as,
        "contract": asdict(contract),
        "cases": [asdict(case) for case in problem.cases],
        "view": problem.view,
        "hints": dict(problem.hints),
        "path": None if problem.path is None else str(problem.path),
    }


def _show(arguments: argparse.Namespace) -> int:
    problem = load_problem(arguments.id, problems_dir=arguments.problems_dir)
    source = {
        "full": lambda: problem.source_for(arguments.device),
        "blind": lambda: problem.source_shown(arguments.device, "blind"),
        "prompt": lambda: problem.source_shown(arguments.device),
    }[arguments.view]()
    sys.stdout.write(source if source.endswith("\n") else source + "\n")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    form, problems, refused = import_problems(arguments.path)
    for message in refused:
        print(f"kbenv: {message}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([_describe(problem) for problem in problems], indent=2))
    else:
        print(f"{arguments.path}: {form}")
        print(f"{len(problems)} of {len(problems) + len(refused)} load; {_licence(problems)}")
        print(_references(problems))
        print_table(("PROBLEMS", "JUDGED", "SUCH AS"), _judged_table(problems))
    return EXIT_REFUSED if refused else 0


def _licence(problems: Sequence[Problem]) -> str:
    origin = next((problem.origin for problem in problems), None)
    if origin is None:
        return "no licence is known"
    use = "for training and evaluation" if origin.may_train else "for evaluation alone"
    return f"licence {origin.licence}: {use}; version {origin.version or 'unknown'}"


def _references(problems: Sequence[Problem]) -> str:
    """Of which kinds they are, and what they need."""
    kinds = Counter(problem.contract.reference for problem in problems)
    needs = sorted({package for problem in problems for package in problem.contract.requires})
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
    return f"references: {counted}" + (f"; some need, besides PyTorch, {', '.join(needs)}" if needs else "")


def _judged_table(problems: Sequence[Problem]) -> list[tuple[str, str, str]]:
    """What is said of judging them, with how many and the first: by the set's own types."""
    groups: dict[str, list[str]] = {}
    for problem in problems:
        why = problem.why_unjudged(problem.own_precision or "fp32")
        words = "yes" if len(problem.cases) < 2 else "yes, on all its cases"
        groups.setdefault(words if why is None else f"no: {why}", []).append(problem.id)
    return [(str(len(ids)), words, ids[0]) for words, ids in sorted(groups.items(), key=lambda item: -len(item[1]))]
