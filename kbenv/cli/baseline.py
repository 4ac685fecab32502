"""`kbenv baseline`: what PyTorch itself takes for problems on this device, kept in a file that other commands read.

A line on standard error as each problem is done, a table of all at the end. Interrupted, or stopped by `--seconds`, the
same command goes on where it was; asked for further variants it measures those alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbenv.cli.judging import add_effort_option, add_place_options, find_problems, open_evaluator
from kbenv.cli.table import print_table
from kbenv.errors import SandboxError, UsageError
from kbenv.protocol import PRECISIONS, get_protocol

if TYPE_CHECKING:
    from kbenv.baseline import Baseline, VariantName
    from kbenv.evaluator import Evaluator
    from kbenv.problems.problem import Problem
    from kbenv.record import Record

EXIT_DONE = 0
EXIT_UNFINISHED = 1
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
PROTOCOL = "verified"
OVER: tuple[VariantName, ...] = ("eager-fp32", "eager-default")
HEADERS = ("PROBLEM", "FP32", "DEFAULT", "TF32", "COMPILED", "OVER FP32", "OVER DEFAULT", "MIB")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv baseline`."""
    parser = subparsers.add_parser(
        "baseline",
        help="time PyTorch itself on problems",
        description="Time and measure the references of problems as eager PyTorch runs them without TF32, "
        "as it is set (TF32 in convolutions and recurrent layers) and with TF32 everywhere, and under torch.compile. "
        "FILE belongs to one device, driver and PyTorch; on others it is refused.",
        epilog="Exit codes: 0 every problem is measured; 1 --seconds were over before; 2 bad usage; 3 a problem could "
        "not be measured, the reason is on standard error.",
    )
    parser.add_argument("pattern", metavar="PATTERN", help="such as 'core/*' or 'kernelbench/*'")
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="JSON Lines, one a problem")
    parser.add_argument(
        "--variants", default="eager-fp32,eager-default,eager-tf32,compiled", metavar="NAMES",
        help="separated by commas (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no further problem after so many")
    add_effort_option(parser)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    add_place_options(parser)
    parser.set_defaults(func=run, backend="auto", require_custom_kernel=None)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing ran.
        SandboxError: the judge cannot be started, or the file cannot be written.
    """
    from kbenv.baseline import Baseline
    from kbenv.record import Record

    variants = _read_variants(arguments.variants)
    if arguments.seconds is not None and not arguments.seconds > 0:
        raise UsageError(f"--seconds must be above 0; found {arguments.seconds:g}")
    protocol = get_protocol(PROTOCOL, arguments.precision)
    arguments.protocol = protocol.with_effort(arguments.effort)
    problems = find_problems(arguments, arguments.pattern)
    record = Record(arguments.out, Baseline)
    until = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    baselines: list[Baseline] = []
    interrupted, faults = False, 0
    with open_evaluator(arguments, lambda _: None) as evaluator:
        try:
            faults = _measure_all(problems, variants, evaluator, record, baselines, until)
        except KeyboardInterrupt:
            interrupted = True
    print_table(HEADERS, [row(baseline) for baseline in baselines])
    print(summary(baselines), file=sys.stderr)
    if interrupted:
        print("kbenv: interrupted; run the same command again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED
    if faults:
        return EXIT_FAULT
    return EXIT_DONE if len(baselines) == len(problems) else EXIT_UNFINISHED


def _read_variants(text: str) -> list[VariantName]:
    from kbenv.baseline import VARIANTS

    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in VARIANTS]:
        raise UsageError(f"--variants must be among {', '.join(VARIANTS)}; found {', '.join(map(repr, unknown))}")
    return [name for name in VARIANTS if name in names]


def _measure_all(
    problems: Sequence[Problem],
    variants: Sequence[VariantName],
    evaluator: Evaluator,
    record: Record[Baseline],
    baselines: list[Baseline],
    until: float | None,
) -> int:
    """Appends to `baselines` those of each problem, from the record where they are there; returns how many failed."""
    from kbenv.audit import source_hash
    from kbenv.baseline import expect_same_machine, machine_key, merge

    earlier = record.read()
    known = merge(earlier)
    if earlier:
        here = machine_key(*evaluator.machine())
        expect_same_machine(earlier[0].machine, here, f"the baselines in {record.path}")
    faults = 0
    for problem in problems:
        key = (problem.id, source_hash(problem, evaluator.device), evaluator.protocol.precision)
        wanted = [name for name in variants if key not in known or name not in known[key].variants]
        if wanted:
            if until is not None and time.monotonic() >= until:
                continue
            started = time.monotonic()
            try:
                baseline = evaluator.baseline(problem, wanted)
            except SandboxError as error:
                faults += 1
                _say(f"{problem.id}: no baseline: {error}")
                continue
            record.append(baseline)
            known = known | merge([*([known[key]] if key in known else []), baseline])
            _say(f"{problem.id}: {', '.join(_words(baseline))} ({time.monotonic() - started:.1f} s)")
        baselines.append(known[key])
    return faults


def row(baseline: Baseline) -> tuple[str, ...]:
    """The table's cells for one problem: milliseconds, what TF32 gains over the other two, and the eager TF32 peak."""
    from kbenv.baseline import VARIANTS

    cells = []
    for name in VARIANTS:
        variant = baseline.variants.get(name)
        cells.append("" if variant is None else "failed" if variant.latency_ms is None else f"{variant.latency_ms:.4g}")
    eager = baseline.variants.get("eager-tf32") or baseline.variants.get("eager-fp32")
    peak = "" if eager is None or eager.peak_bytes is None else f"{eager.peak_bytes / 2**20:.4g}"
    gains = [baseline.tf32_gain(over) for over in OVER]
    return baseline.problem, *cells, *("" if gain is None else f"{gain:.2f}x" for gain in gains), peak


def summary(baselines: Sequence[Baseline]) -> str:
    """In one line: how many problems TF32 and torch.compile make faster."""
    from kbenv.baseline import LARGE_GAIN

    pairs = [(baseline.latency_ms("eager-tf32"), baseline.latency_ms("compiled")) for baseline in baselines]
    compiled = [eager / fast for eager, fast in pairs if eager is not None and fast is not None]
    parts = [f"{len(baselines)} problems"]
    for over in OVER:
        gains = [gain for baseline in baselines if (gain := baseline.tf32_gain(over)) is not None]
        if gains:
            large = sum(gain > LARGE_GAIN for gain in gains)
            share = f"{large} of {len(gains)} ({large / len(gains):.1%})"
            parts.append(f"TF32 makes {share} more than {LARGE_GAIN}x faster than {over}")
    if compiled:
        faster = sum(gain > 1 for gain in compiled)
        parts.append(f"torch.compile is faster than eager TF32 on {faster} of {len(compiled)}")
    return "; ".join(parts)


def _words(baseline: Baseline) -> list[str]:
    return [
        f"{name} {'failed: ' + (variant.error or '') if variant.latency_ms is None else f'{variant.latency_ms:.4g} ms'}"
        for name, variant in baseline.variants.items()
    ]


def _say(line: str) -> None:
    print(" ".join(line.split()), file=sys.stderr, flush=True)
