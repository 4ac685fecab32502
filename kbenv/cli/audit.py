"""`kbenv problems audit`: what the references of problems are like, on this device.

One line on standard error as each problem is done, a table of all at the end; a problem of several cases has one for
each. With `--out` every audit is kept as it is made, and the same command goes on where an earlier one stopped: it
makes again only what another source, device, version or rule would make differ, and what a shorter time limit had cut.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbenv.cli.judging import add_place_options, find_problems, open_evaluator
from kbenv.cli.table import print_table
from kbenv.errors import SandboxError, UsageError
from kbenv.protocol import PRECISIONS, Protocol, get_protocol

if TYPE_CHECKING:
    from kbenv.audit import Audit
    from kbenv.evaluator import Evaluator
    from kbenv.problems.problem import Problem
    from kbenv.record import Record

EXIT_DONE = 0
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
PROTOCOL = "hardened"
LIMIT_S = 300.0
HEADERS = ("PROBLEM", "VERDICT", "MS", "MIB", "RMS", "ERROR", "FLAGS")


def add_audit_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv problems audit`."""
    parser = commands.add_parser(
        "audit",
        help="find out what problems' references are like",
        description="Run the references of problems, without any submission, and say which are degenerate and what "
        "is to be known of the others; of a problem of several cases look at each, hidden ones too. Interrupted "
        "(Ctrl-C), the same command with the same --out goes on.",
        epilog="Columns: milliseconds a call, MiB that a call holds, root mean square of the output, the reference's "
        "largest relative rounding error. Exit codes: 0 every problem has an audit, whatever it says; 2 bad usage; "
        "3 there is none for some problem, the reason is on standard error.",
    )
    parser.add_argument("pattern", metavar="PATTERN", help="such as 'core/*' or 'kernelbench/level1/*'")
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep every audit as a line of this file (JSON Lines)")
    parser.add_argument(
        "--json", metavar="PATH", help="write all of these audits as a JSON array; - for standard output"
    )
    parser.add_argument(
        "--limit-s", type=float, default=LIMIT_S, metavar="S",
        help="begin nothing more of a problem's audit after this many seconds (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    add_place_options(parser)
    parser.set_defaults(func=run, backend="auto", require_custom_kernel=None, effort="full")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing ran.
        SandboxError: the judge cannot be started, or a file cannot be written.
    """
    from kbenv.audit import Audit
    from kbenv.record import Record

    if not arguments.limit_s > 0:
        raise UsageError(f"--limit-s must be above 0; found {arguments.limit_s:g}")
    arguments.protocol = rules(arguments.precision, arguments.limit_s)
    problems = _each_case(find_problems(arguments, arguments.pattern), arguments.precision)
    _check_writable(arguments.json)
    record = Record(arguments.out, Audit) if arguments.out is not None else None
    audits: list[Audit] = []
    interrupted = False
    with open_evaluator(arguments, lambda _: None) as evaluator:
        try:
            _audit_all(problems, evaluator, record, audits)
        except KeyboardInterrupt:
            interrupted = True
    if arguments.json != "-":
        print_table(HEADERS, [row(audit) for audit in audits])
    _write_json(arguments.json, audits)
    if interrupted:
        again = "run the same command again to go on" if record is not None else "with --out it could go on from here"
        print(f"kbenv: interrupted; {again}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_DONE if len(audits) == len(problems) else EXIT_FAULT


def _each_case(problems: Sequence[Problem], precision: str) -> list[Problem]:
    """The problems, and in place of one of several cases each that is judged, hidden ones too."""
    from kbenv.case import split

    found: list[Problem] = []
    for problem in problems:
        several = problem.case is None and len(problem.cases) > 1
        cases = [one for _, one in split(problem, precision)[0]] if several else []
        found += cases or [problem]
    return found


def rules(precision: str, limit_s: float) -> Protocol:
    """The protocol whose distributions and rounding errors an audit looks at, with the audit's time limit."""
    protocol = get_protocol(PROTOCOL, precision)  # type: ignore[arg-type]  # argparse has checked it
    return protocol.model_copy(update={"limits": protocol.limits.model_copy(update={"job_s": limit_s})})


def _audit_all(
    problems: Sequence[Problem], evaluator: Evaluator, record: Record[Audit] | None, audits: list[Audit]
) -> None:
    """Appends to `audits` what each problem has come to, from the record where it is there."""
    from kbenv.audit import audit_key, source_hash

    known = {audit.key: audit for audit in record.read()} if record is not None else {}  # later lines count
    hardware, software = evaluator.machine()
    for problem in problems:
        source = source_hash(problem, evaluator.device)
        earlier = known.get(audit_key(problem.id, source, evaluator.protocol, hardware, software))
        if earlier is not None and not _deserves_more(earlier, evaluator.protocol):
            audits.append(earlier)
            _say(f"{problem.id}: {verdict(earlier)} (on record)")
            continue
        started = time.monotonic()
        try:
            audit = evaluator.audit(problem)
        except SandboxError as error:
            _say(f"{problem.id}: no audit: {error}")
            continue
        if record is not None:
            record.append(audit)
        audits.append(audit)
        _say(f"{problem.id}: {verdict(audit)} ({time.monotonic() - started:.1f} s)")


def _deserves_more(audit: Audit, protocol: Protocol) -> bool:
    """Whether a shorter time limit than now cut it short."""
    return bool(audit.skipped) and audit.protocol.limits.job_s < protocol.limits.job_s


def verdict(audit: Audit) -> str:
    """In one line: whether it is degenerate, and why."""
    if audit.degenerate:
        return "degenerate: " + "; ".join(finding.text for finding in audit.degenerate)
    return "sound"


def row(audit: Audit) -> tuple[str, ...]:
    """The table's cells for one audit."""
    from kbenv.audit import largest_error

    size, state = audit.size, audit.judged
    took_ms = held = rms = error = ""
    if size is not None:
        took_ms = f"{size.forward_ms if size.device_ms is None else size.device_ms:.3g}"
        held_bytes = size.peak_bytes or size.input_bytes + size.weight_bytes + size.output_bytes
        held = f"{held_bytes / 2**20:.3g}"
    if state is not None:
        sizes = [output.rms for output in state.outputs if output.rms is not None]
        rms, error = f"{max(sizes):.2g}" if sizes else "", f"{largest_error(state):.1e}"
    flags = " ".join(finding.flag for finding in (*audit.degenerate, *audit.notes))
    return audit.problem, "degenerate" if audit.degenerate else "sound", took_ms, held, rms, error, flags


def _check_writable(path: str | None) -> None:
    if path not in (None, "-"):
        try:
            with open(str(path), "ab"):
                pass
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; choose another --json") from error


def _write_json(path: str | None, audits: Sequence[Audit]) -> None:
    if path is None:
        return
    text = json.dumps([audit.model_dump(mode="json") for audit in audits], indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SandboxError(f"the audits could not be written to {path}: {error.strerror}") from error


def _say(line: str) -> None:
    print(" ".join(line.split()), file=sys.stderr, flush=True)
