"""`kbenv repro`: a short script that shows a verdict's fault, or its speed, with PyTorch alone."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbenv.cli.eval import read_text
from kbenv.errors import SandboxError, UsageError
from kbenv.extraction import extract_code

if TYPE_CHECKING:
    from kbenv.verdict import Verdict


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv repro`."""
    parser = subparsers.add_parser(
        "repro",
        help="a script that shows a verdict with PyTorch alone",
        description="Write a standalone script that builds reference and submission, draws the inputs of the check "
        "that failed, and prints where they differ; for a credited verdict, how fast both are.",
    )
    parser.add_argument(
        "verdict", metavar="VERDICT", type=Path,
        help="a verdict's JSON (`kbenv eval --json`), or a turn of a run (turn-000.json), which holds the source too",
    )  # fmt: skip
    parser.add_argument("--source", type=Path, metavar="FILE", help="the submission, where VERDICT does not hold it")
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the script and returns 0.

    Raises:
        UsageError: an argument is no good, or the check that failed cannot be shown in this way.
    """
    from kbenv.problems import load_problem
    from kbenv.repro import render_script

    verdict, source = read_verdict(arguments.verdict)
    if arguments.source is not None:
        text = read_text(arguments.source)
        source = (extract_code(text) or text) if arguments.source.suffix.lower() in (".md", ".markdown") else text
    if source is None:
        raise UsageError(f"{arguments.verdict} does not hold the submission's source: name it with --source")
    script = render_script(verdict, load_problem(verdict.problem, problems_dir=arguments.problems_dir), source)
    if arguments.out is None:
        sys.stdout.write(script)
        return 0
    try:
        arguments.out.write_text(script, encoding="utf-8")
    except OSError as error:
        raise SandboxError(f"the script could not be written to {arguments.out}: {error.strerror}") from error
    return 0


def read_verdict(path: Path) -> tuple[Verdict, str | None]:
    """A verdict, and its source where the file is a run's turn.

    Raises:
        UsageError: it is neither.
    """
    from pydantic import ValidationError

    from kbenv.store import StoredTurn
    from kbenv.verdict import Verdict

    try:
        data = path.read_bytes()
        if "observation" in json.loads(data):
            turn = StoredTurn.model_validate_json(data)
            if turn.verdict is None:
                raise UsageError(f"{path} is a turn that has not been judged")
            return turn.verdict, turn.code
        return Verdict.model_validate_json(data), None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UsageError:
        raise
    except (ValidationError, ValueError, TypeError) as error:
        raise UsageError(f"expected a verdict's JSON, or a turn of a run; {path} is neither") from error
