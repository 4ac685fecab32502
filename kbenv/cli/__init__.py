"""The `kbenv` command: one subcommand per module of this package.

Each subcommand's module has `add_parser(subparsers)`, which sets `func`, a function from the parsed arguments to an
exit code. Exit codes: 0 done (for `eval`: credited), 1 done with a negative answer, 2 bad usage (nothing ran),
3 a fault of the machine, of kbenv or of the language model's service, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence

from kbenv.errors import ModelError, SandboxError, UsageError

EXIT_USAGE = 2
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: the process's own arguments) and returns the exit code.

    Raises:
        SystemExit: argparse ends the process itself for `--help`, `--version` and arguments it cannot parse (code 2).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still gets every line
    try:
        arguments = _build_parser().parse_args(argv)
        code: int = arguments.func(arguments)
        # Flushed here, where a closed pipe can still be answered; at interpreter exit it would be a traceback.
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _fail(error, EXIT_USAGE)
    except (SandboxError, ModelError) as error:
        return _fail(error, EXIT_FAULT)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`kbenv problems list | head`): what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception:  # kbenv's own fault, or that of an agent of the user's: 1, Python's own code, would be an answer
        traceback.print_exc()
        return EXIT_FAULT


def _build_parser() -> argparse.ArgumentParser:
    from kbenv.cli import (
        baseline,
        doctor,
        eval,
        export,
        generate,
        mcp,
        problems,
        prompt,
        redteam,
        rejudge,
        report,
        repro,
        run,
        sandbox,
    )

    parser = argparse.ArgumentParser(
        prog="kbenv",
        description="Language models write GPU kernels; a judge they cannot reach says whether they are right and "
        "how fast they are.",
    )
    parser.add_argument("--version", action="version", version=f"kbenv {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        eval, run, generate, rejudge, report, export, repro, baseline, mcp, problems, prompt, redteam, doctor, sandbox,
    ):  # fmt: skip
        module.add_parser(subparsers)
    return parser


def _version() -> str:
    from importlib.metadata import version

    return version("kbenv")


def _fail(reason: object, code: int) -> int:
    """Says `reason` in one line on standard error."""
    print("kbenv:", " ".join(str(reason).split()), file=sys.stderr)
    return code
