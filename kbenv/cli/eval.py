"""`kbenv eval`: judges one source against one problem and says what was established.

Exit code 0 when credited, 1 when not; bad usage and faults are raised and become 2 and 3 in `kbenv.cli`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kbenv.cli.bars import Bars
from kbenv.cli.judging import add_judging_options, open_evaluator
from kbenv.errors import SandboxError, UsageError
from kbenv.extraction import extract_code
from kbenv.feedback import quoted

if TYPE_CHECKING:
    from pydantic import JsonValue

    from kbenv.problems.problem import Problem
    from kbenv.verdict import Check, Verdict

MAX_SOURCE_BYTES = 5_000_000
DETAIL_CHARACTERS = 8000
_MARKDOWN_SUFFIXES = frozenset({".md", ".markdown"})


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the `eval` subcommand."""
    parser = subparsers.add_parser(
        "eval",
        help="judge one kernel source",
        description="Judge one kernel source against one problem. Exit code 0: credited; 1: not credited; 2: bad "
        "usage, nothing ran; 3: a fault of the machine.",
    )
    parser.add_argument("problem", metavar="PROBLEM", help="a name such as core/level1/relu, or a problem file's path")
    parser.add_argument("file", metavar="FILE", type=Path, help="Python source, or a model's answer in Markdown (.md)")
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="VERDICT",
        help="judge under the protocol and with the seeds of this verdict (JSON), so that every draw is the same again",
    )  # fmt: skip
    parser.add_argument(
        "--screen", action="store_true", help="also print what the source says, place by place; it decides nothing"
    )
    parser.add_argument(
        "--profile", action="store_true", help="also print where the judge's time went, phase by phase, as bars"
    )
    parser.add_argument("--json", metavar="PATH", help="write the whole verdict as JSON; - for standard output")
    add_judging_options(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Judges, prints, and returns the exit code.

    Raises:
        UsageError: the problem, the file or an option is no good; nothing ran.
        SandboxError: no verdict could be had.
    """
    # Imported here, because they bring torch: `kbenv --help` and a bad FILE need not wait for it.
    from kbenv.problems import load_problem

    text = read_text(arguments.file)
    json_path = None if arguments.json in (None, "-") else Path(arguments.json)
    if json_path is not None:
        _check_writable(json_path, arguments.file)
    problem = load_problem(arguments.problem, problems_dir=arguments.problems_dir)
    replayed = None if arguments.replay is None else _read_verdict(arguments.replay, problem)
    verdict = _judge(problem, text, arguments, replayed)
    Console(stderr=arguments.json == "-").print(
        describe(verdict, with_screen=arguments.screen, with_profile=arguments.profile)
    )
    if arguments.json == "-":
        print(_to_json(verdict))
    elif json_path is not None:
        try:
            json_path.write_text(_to_json(verdict) + "\n", encoding="utf-8")
        except OSError as error:
            raise SandboxError(f"the verdict could not be written to {json_path}: {error.strerror}") from error
    return 0 if verdict.credited else 1


def read_text(path: Path) -> str:
    """The text of the file to judge, without a byte order mark.

    Raises:
        UsageError: it is missing, no regular file, unreadable, empty, not UTF-8 text, or too large.
    """
    try:
        if path.is_dir():
            raise UsageError(f"FILE must be a source file; {path} is a directory")
        if path.exists() and not path.is_file():
            raise UsageError(f"FILE must be a regular file; {path} is none")
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE_BYTES)
    except FileNotFoundError:
        raise UsageError(f"FILE must exist; there is no {path}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"cannot read {path}: {reason}") from error
    if len(data) >= MAX_SOURCE_BYTES:
        raise UsageError(f"FILE must be smaller than {MAX_SOURCE_BYTES // 1_000_000} MB; {path} is larger")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"FILE must be UTF-8 text; {path} is not (byte {error.start})") from error
    if "\0" in text:
        raise UsageError(f"FILE must be text; {path} holds null bytes")
    if not text.strip():
        raise UsageError(f"FILE must hold source; {path} is empty")
    return text


def describe(verdict: Verdict, *, with_screen: bool = False, with_profile: bool = False) -> RenderableType:
    """A verdict for people; foreign text in it is cleaned of control characters."""
    style = "bold green" if verdict.credited else "bold red"
    parts: list[RenderableType] = [
        Text.assemble((verdict.status.value, style), "  ", verdict.problem),
        _pairs(verdict, with_seconds=not with_profile),
    ]
    if verdict.checks:
        parts += [Text("checks", style="bold"), Padding(_checks(verdict), (0, 0, 0, 2))]
    if verdict.flags:
        parts += [Text("flags", style="bold"), *(Text(f"  - {_one_line(flag)}") for flag in verdict.flags)]
    if verdict.diagnosis is not None:
        parts += [Text("diagnosis (decides nothing)", style="bold"), *map(Text, _diagnosis(verdict))]
    if with_screen:
        found = [f"  - {f.line}:{f.column + 1} {f.rule}: {_one_line(f.text)}" for f in verdict.screen]
        parts += [Text("screen", style="bold"), *map(Text, found or ["  nothing"])]
    if with_profile and verdict.seconds:
        parts += [Text("seconds of the judge", style="bold"), Padding(Bars(verdict.seconds), (0, 0, 0, 2))]
    if not verdict.credited:
        parts.append(Text(_one_line(verdict.message), style=style))
        for title, foreign in (("detail", verdict.detail), ("printed by the submission", verdict.output)):
            shown = quoted(foreign, DETAIL_CHARACTERS)
            if shown is not None:
                parts += [Text(title, style="bold"), Text(shown)]
    return Group(*parts)


def _read_verdict(path: Path, problem: Problem) -> Verdict:
    """The verdict to replay. Raises UsageError: it is none, of another problem, or without all seeds."""
    from pydantic import ValidationError

    from kbenv.record import first_error
    from kbenv.verdict import SEEDS, Verdict

    try:
        verdict = Verdict.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(f"--replay must name a verdict's JSON; {path} is none: {first_error(error)}") from error
    if verdict.problem != problem.id:
        raise UsageError(f"--replay must name a verdict on {problem.id}; {path} is on {verdict.problem}")
    if missing := SEEDS - set(verdict.seeds):
        raise UsageError(f"{path} does not record every seed ({', '.join(sorted(missing))}): it cannot be replayed")
    return verdict


def _judge(problem: Problem, text: str, arguments: argparse.Namespace, replayed: Verdict | None) -> Verdict:
    console = Console(stderr=True)
    with console.status("starting") as status:  # draws on a terminal only

        def show(phase: str) -> None:
            status.update(Text(phase))

        seeds = None
        if replayed is not None:
            arguments.protocol, arguments.require_custom_kernel, seeds = replayed.protocol, None, replayed.seeds
        with open_evaluator(arguments, show) as evaluator:
            if arguments.file.suffix.lower() not in _MARKDOWN_SUFFIXES:
                return evaluator.evaluate(problem, text, seeds=seeds)
            source = extract_code(text)
            if source is None:
                return evaluator.format_error(problem, f"{arguments.file} holds no fenced block with Python code")
            return evaluator.evaluate(problem, source, seeds=seeds)


def _check_writable(path: Path, source: Path) -> None:
    """Raises UsageError when the verdict could not be written to `path`, before anything is judged."""
    try:
        if path.is_dir():
            raise UsageError(f"--json must name a file; {path} is a directory")
        if path.exists():
            if path.samefile(source):
                raise UsageError(f"--json must not overwrite the source; found {path} for both")
            writable = os.access(path, os.W_OK)
        else:
            path.open("x").close()
            path.unlink()
            writable = True
    except OSError as error:
        raise UsageError(f"--json must name a file that can be written; {path}: {error.strerror}") from error
    if not writable:
        raise UsageError(f"--json must name a file that can be written; {path} is read-only")


def _to_json(verdict: Verdict) -> str:
    # ASCII, so that neither the terminal's encoding nor a stray surrogate can spoil it.
    return json.dumps(verdict.model_dump(mode="json"), indent=2)


def _pairs(verdict: Verdict, *, with_seconds: bool) -> Table:
    protocol = verdict.protocol
    quick = ", quick" if protocol.effort == "quick" else ""
    pairs: list[tuple[str, str]] = [("protocol", f"{protocol.name}, {protocol.precision}{quick}")]
    if verdict.speedup is not None:
        speedup = verdict.speedup
        pairs.append(("speedup", f"{speedup.value:.3g}x [{speedup.low:.3g}, {speedup.high:.3g}]"))
    if verdict.latency_ms is not None:
        pairs.append(("latency", f"{verdict.latency_ms:.4g} ms; reference {verdict.reference_latency_ms:.4g} ms"))
    if verdict.clock is not None:
        pairs.append(("clock", verdict.clock))
    if verdict.memory is not None:
        memory = verdict.memory
        peaks = f"{_mib(memory.submission_peak_bytes)}; reference {_mib(memory.reference_peak_bytes)}"
        pairs.append(("memory", f"{peaks}; ratio {memory.ratio:.3g}"))
    if verdict.provenance is not None:
        seen = ", ".join(f"{name} {share:.1%}" for name, share in list(verdict.provenance.library_calls.items())[:3])
        words = f"{verdict.provenance.custom_share:.1%} of the time, self-reported"
        pairs.append(("custom kernels", f"{words}; libraries: {seen}" if seen else words))
    if verdict.plausibility is not None and verdict.plausibility.floor_ms is not None:
        pairs.append(("floor", f"{verdict.plausibility.floor_ms:.4g} ms"))
    if verdict.isolation is not None:
        isolation = verdict.isolation
        missing = f"; without {', '.join(isolation.missing)}" if isolation.missing else ""
        pairs.append(("isolation", f"{isolation.level} ({isolation.sandbox}){missing}"))
    if verdict.hardware is not None:
        pairs.append(("device", f"{verdict.hardware.device} ({verdict.hardware.name})"))
    if verdict.stage is not None:
        pairs.append(("failed at", verdict.stage.value))
    if verdict.seconds and with_seconds:
        phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in verdict.seconds.items())
        pairs.append(("seconds", phases))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name, style="bold"), Text(_one_line(value)))
    return table


def _diagnosis(verdict: Verdict) -> list[str]:
    """What was also looked at: a line for each kernel, each launch, and what is not known."""
    from kbenv.profile import code_of, counters_of, find_limit

    lines = []
    for kernel in code_of(verdict):
        n = kernel.instructions
        words = [
            f"{kernel.registers} registers", f"{kernel.stack_bytes} B stack", f"{kernel.shared_bytes} B shared",
            f"{n.get('all', 0)} instructions", f"{n.get('tensor_core', 0)} tensor-core",
            f"{n.get('global_load_128', 0)}/{n.get('global_load', 0)} loads of 16 B",
            f"{n.get('async_copy', 0)} async copies", f"{n.get('local', 0)} spills",
        ]  # fmt: skip
        words += [f"occupancy {at.share:.0%} at {at.threads} threads" for at in kernel.occupancy if at.threads == 256]
        by = ", self-reported" if kernel.self_reported else ""
        lines.append(f"  - {_one_line(kernel.short_name)} (sm_{kernel.capability}{by}): {', '.join(words)}")
    for launch in counters_of(verdict):
        limit = find_limit(launch)
        busy = f"{limit.resource}, {limit.percent:.0f}% of the peak" if limit is not None else "unknown"
        lines.append(f"  - {_one_line(launch.kernel)} (counters, self-reported): limit {busy}")
    diagnosis = verdict.diagnosis
    if diagnosis is not None:
        lines += [f"  - {line}" for line in (diagnosis.access or "").splitlines()]
        lines += [f"  - no {name}: {_one_line(reason)}" for name, reason in diagnosis.missing.items()]
    return lines


def _checks(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    outcomes = {True: Text("right", style="green"), False: Text("wrong", style="red"), None: Text("dropped")}
    for check in verdict.checks:
        table.add_row(outcomes[check.passed], Text(_one_line(check.name)), Text(_evidence(check)))
    return table


def _evidence(check: Check) -> str:
    """What was seen, in a few words for a comparison, else as it is."""
    evidence = dict(check.evidence)
    parts = []
    if "max_abs_error" in evidence:
        mismatched, elements = evidence.pop("mismatched", None), evidence.pop("elements", None)
        if mismatched:
            parts.append(f"{mismatched} of {elements} wrong")
        parts.append(f"error {_short(evidence.pop('max_abs_error'))}")
        parts.append(f"relative {_short(evidence.pop('max_rel_error', None))}")
        first = evidence.pop("first_mismatch", None)
        if isinstance(first, dict):
            where = f"output {first.get('output')} {_short(first.get('index'))}"
            parts.append(f"{where}: expected {_short(first.get('expected'))}, found {_short(first.get('found'))}")
    parts += [f"{key} {_short(value)}" for key, value in evidence.items()]
    return _one_line(", ".join(parts))


def _short(value: JsonValue) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.4g} MiB"


def _one_line(text: str) -> str:
    """Text on one line, without control characters (a submission may have chosen the words)."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
