"""Turns a file of `kbenv baseline` into a table (Markdown): what TF32 and torch.compile do to KernelBench's references.

On a GPU, in parts of ten minutes (the same command goes on where the last one stopped; exit code 1: some are left):

    kbenv baseline 'kernelbench/*' --problems-dir ~/KernelBench --seconds 540 \
        --variants eager-fp32,eager-default,eager-tf32 --effort quick \
        --out baselines.jsonl
    kbenv baseline 'kernelbench/*' --problems-dir ~/KernelBench --seconds 540 --out baselines.jsonl   # torch.compile
    python benchmarks/baselines.py baselines.jsonl benchmarks/results/baselines.md
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from kbenv.baseline import LARGE_GAIN, Baseline, read_table
from kbenv.cli.baseline import OVER, row
from kbenv.metrics import geometric_mean

PAPER = "24%"
"""Of KernelBench's 250 problems, by KernelBench-Verified (arXiv 2607.16241) on an H200."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("baselines", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    table = list(read_table(arguments.baselines).values())
    table.sort(key=lambda one: [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", one.problem)])
    arguments.out.write_text("\n".join(render(table)) + "\n", encoding="utf-8")
    print("\n".join(render(table)[:20]))


def render(table: Sequence[Baseline]) -> list[str]:
    first = table[0]
    levels: dict[str, list[Baseline]] = defaultdict(list)
    for one in table:
        levels[re.sub(r"/[^/]*$", "", one.problem)].append(one)
    lines = [
        "# Baselines", "",
        f"{first.hardware.name}, driver {first.hardware.driver}, torch {first.software.get('torch')}, kbenv "
        f"{first.software.get('kbenv')}, {first.precision}. Milliseconds a call, by `kbenv baseline`.",
        "",
        f"KernelBench-Verified reports that TF32 makes {PAPER} of the 250 problems more than {LARGE_GAIN}x faster: "
        "over PyTorch's defaults, which have TF32 in cuDNN's convolutions and recurrent layers already.", "",
        f"| problems | measured | TF32 > {LARGE_GAIN}x over the default | mean gain | > {LARGE_GAIN}x over fp32 "
        "| mean gain | compiled beats TF32 | mean gain |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [_line(name, levels[name]) for name in levels] + ([_line("all", table)] if len(levels) > 1 else [])
    lines += [
        "",
        "| problem | fp32 | default | TF32 | compiled | TF32 over fp32 | over default | peak MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row(one))} |" for one in table]
    failed = [
        f"- {one.problem}, {name}: {' '.join((variant.error or '').split())[:200]}"
        for one in table
        for name, variant in one.variants.items()
        if variant.latency_ms is None
    ]
    return lines + (["", "Without a latency:", "", *failed] if failed else [])


def _line(name: str, table: Sequence[Baseline]) -> str:
    compiled = [
        eager / fast
        for one in table
        if (eager := one.latency_ms("eager-tf32")) is not None and (fast := one.latency_ms("compiled")) is not None
    ]
    cells = [name, str(len(table))]
    for over in reversed(OVER):
        gains = [gain for one in table if (gain := one.tf32_gain(over)) is not None]
        cells += [_share(gain > LARGE_GAIN for gain in gains), _mean(gains)]
    return f"| {' | '.join([*cells, _share(x > 1 for x in compiled), _mean(compiled)])} |"


def _share(flags: Iterable[bool]) -> str:
    known = list(flags)
    return f"{sum(known)}/{len(known)} ({sum(known) / len(known):.1%})" if known else ""


def _mean(values: Sequence[float]) -> str:
    mean = geometric_mean(values)
    return "" if mean is None else f"{mean:.2f}x"


if __name__ == "__main__":
    main()
