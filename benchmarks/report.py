"""Measures kbenv's own claims on a GPU and writes one Markdown table a section (`make bench`).

Sections:
    references: KernelBench references submitted as their own ModelNew, each as PyTorch computes it with TF32 and
        without, without the custom-kernel requirement. A level-stratified draw with a fixed seed, plus the problems
        that are known to be special; with --all each that the audit does not exclude.
    cases: a cheat and honest kernels on KernelBench L1/19 and L1/1.
    clock: the reference against itself on ten problems from 0.01 to 10 ms, several verdicts each: how often the
        interval covers 1.0, and the judge's clock beside CUDA events and Triton's do_bench.
    recovery: a kernel that writes out of bounds, one that never ends, and after each an honest one.
    sandboxes: the same submissions in the Docker sandbox and in the process sandbox, faults each followed by an honest
        kernel: statuses, speedups, peak memory.
    capacity: L1/19 with all but 24 GB of the card taken by another process.

Needs a KernelBench checkout (KBENV_KERNELBENCH) for all but `clock`, `recovery` and `sandboxes`; `sandboxes` needs a
Docker engine with the image.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbenv import Evaluator, Verdict, get_protocol, list_problems, load_problem
from kbenv.cli.redteam import parse_shard
from kbenv.errors import SandboxError, UsageError
from kbenv.problems import Problem
from kbenv.protocol import Protocol
from kbenv.sandbox.docker import DockerSettings

SECTIONS = ("references", "cases", "clock", "aa", "recovery", "sandboxes", "capacity")
KERNELS = Path(__file__).parent / "kernels"
SPECIAL = ("level1/95", "level1/90", "level1/98", "level2/23", "level2/66", "level2/80", "level2/83", "level3/35")
DRAW = {1: 18, 2: 13, 3: 9}
AA_DRAW = {1: 4, 2: 4}
"""Problems of KernelBench beside the twelve of core for `aa`, by level."""
CASES = (
    ("level1/19", "relu_identity"), ("level1/19", "relu_cuda"), ("level1/19", "relu_triton"),
    ("level1/1", "matmul_fp32"), ("level1/1", "matmul_exact"), ("level1/1", "matmul_tf32"),
)  # fmt: skip
SANDBOX_CASES = (
    "relu_triton", "relu_identity", "relu_out_of_bounds", "relu_triton", "relu_endless", "relu_triton",
    "relu_out_of_memory", "relu_triton",
)  # fmt: skip
CLOCK_PROBLEMS = (
    ("relu", 1 << 20), ("relu", 1 << 24), ("relu", 1 << 27), ("relu", 1 << 29),
    ("softmax", 1 << 22), ("softmax", 1 << 28), ("matmul", 1024), ("matmul", 2048), ("matmul", 4096), ("matmul", 12288),
)  # fmt: skip
_FORWARD = {"relu": "torch.relu(x)", "softmax": "torch.softmax(x, 1)", "matmul": "x @ x"}


_EXACT = "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = False\ntorch.backends.cudnn.allow_tf32 = False\n"


def as_submission(problem: Problem, *, is_exact: bool = False) -> str:
    """The reference's source with `Model` renamed `ModelNew`; exact: without TF32."""
    return (_EXACT if is_exact else "") + re.sub(r"\bModel\b", "ModelNew", problem.source)


def clock_problem(operator: str, size: int) -> Problem:
    """One operator over `size` elements (rows of 1024), or a square matrix of that side."""
    shape = f"({size}, {size})" if operator == "matmul" else f"({size // 1024}, 1024)"
    draw = "torch.rand" if operator == "matmul" else "torch.randn"  # TF32 on signed operands is outside 1e-3
    source = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {_FORWARD[operator]}\n\n\n"
        f"def get_inputs():\n    return [{draw}{shape}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Problem(id=f"{operator} {size}", name=operator, level=None, source=source)


def judge(evaluator: Evaluator, problem: Problem, source: str) -> tuple[Verdict | None, str, float]:
    """The verdict or None with the reason, and the wall seconds."""
    started = time.perf_counter()
    try:
        verdict = evaluator.evaluate(problem, source)
        return verdict, verdict.message if not verdict.credited else "", time.perf_counter() - started
    except (SandboxError, UsageError) as e:
        return None, f"{type(e).__name__}: {e}".split("\n")[0], time.perf_counter() - started


def number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def verdict_row(problem: Problem, name: str, verdict: Verdict | None, note: str, seconds: float) -> list[str]:
    status = verdict.status.value if verdict else "no verdict"
    speedup = verdict.speedup if verdict else None
    phases = " ".join(f"{phase} {spent:.2f}" for phase, spent in verdict.seconds.items()) if verdict else ""
    dropped = [check.name for check in verdict.checks if check.passed is None] if verdict else []
    notes = "; ".join([note, *(verdict.flags if verdict else ()), *(f"{name} dropped" for name in dropped)]).strip("; ")
    return [
        problem.id, name or problem.name, status,
        f"{speedup.value:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]" if speedup else "",
        number(verdict.latency_ms) if verdict else "", number(verdict.reference_latency_ms) if verdict else "",
        (verdict.clock or "") if verdict else "", number(verdict.memory.ratio, 3) if verdict and verdict.memory else "",
        f"{seconds:.1f}", phases, notes[:300],
    ]  # fmt: skip


VERDICT_HEADER = [
    "problem", "submission", "status", "speedup", "ms", "reference ms", "clock", "memory ratio", "s", "s per phase",
    "notes",
]  # fmt: skip


def references(options: argparse.Namespace) -> Iterator[list[str]]:
    yield VERDICT_HEADER
    started = time.perf_counter()
    if options.only:
        ids = [f"kernelbench/{name}" for name in options.only.split(",")]
    else:
        levels = [[problem.id for problem in list_problems(f"kernelbench/level{level}/*")] for level in DRAW]
        sizes = map(len, levels) if options.all else DRAW.values()
        ids = [
            name
            for level, of_level, size in zip(DRAW, levels, sizes, strict=True)
            for name in random.Random(level).sample(of_level, min(size, len(of_level)))
        ]
        ids += [] if options.all else [f"kernelbench/{name}" for name in SPECIAL]
    first, step = parse_shard(options.shard)
    ids = sorted(set(ids), key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])[first::step]
    with Evaluator(
        protocol=options.protocol, effort=options.effort, require_custom_kernel=False, device=options.device
    ) as evaluator:
        excluded = () if options.only else evaluator.protocol.excluded
        for name in (name for name in ids if name not in excluded):
            problem = load_problem(name)
            for is_exact in (False, True):
                if time.perf_counter() - started > options.budget_s:
                    return
                source = as_submission(problem, is_exact=is_exact)
                form = "exact" if is_exact else "TF32"
                yield verdict_row(problem, form, *judge(evaluator, problem, source))


def aa(repeats: int, budget_s: float, device: str) -> Iterator[list[str]]:
    """The reference as its own submission under `hardened`: its interval is to cover 1.0, 93 times in 100 at least."""
    yield [*VERDICT_HEADER[:4], "covers 1.0", "pairs", *VERDICT_HEADER[4:]]
    started = time.perf_counter()
    problems = list_problems("core/level[123]/*")[:12]
    for level, count in AA_DRAW.items():
        problems += random.Random(level).sample(list_problems(f"kernelbench/level{level}/*"), count)
    with Evaluator(protocol="hardened", require_custom_kernel=False, device=device) as evaluator:
        for problem in problems * repeats:  # one of each in turn, so that a short budget leaves none out
            if time.perf_counter() - started > budget_s:
                return
            verdict, note, seconds = judge(evaluator, problem, as_submission(problem))
            row = verdict_row(problem, "", verdict, note, seconds)
            speedup = verdict.speedup if verdict else None
            covers = "" if speedup is None else "yes" if speedup.low <= 1.0 <= speedup.high else "NO"
            yield [*row[:4], covers, describe_pairs(verdict), *row[4:]]


def describe_pairs(verdict: Verdict | None) -> str:
    """How many pairs of runners, calls in a turn, and the standard deviation of the speedups that pairs show."""
    measured = verdict.measurement if verdict else None
    if measured is None:
        return ""
    ratios = [r / s for r, s in zip(measured.reference_turns_ms, measured.submission_turns_ms, strict=True)]
    turns = len(ratios) // measured.runner_pairs
    of_pairs = [math.log(statistics.median(ratios[at : at + turns])) for at in range(0, len(ratios), turns)]
    spread = f": {statistics.stdev(of_pairs):.2%}" if len(of_pairs) > 1 else ""
    return f"{measured.runner_pairs} of {measured.calls_per_turn}{spread}"


def cases() -> Iterator[list[str]]:
    yield VERDICT_HEADER
    with Evaluator(protocol="verified") as evaluator:
        for name, kernel in CASES:
            problem = load_problem(f"kernelbench/{name}")
            yield verdict_row(problem, kernel, *judge(evaluator, problem, (KERNELS / f"{kernel}.py").read_text()))


def clock(repeats: int, budget_s: float) -> Iterator[list[str]]:
    yield ["problem", "judge ms", "judge, paired reference ms", "events ms", "do_bench ms", "judge/do_bench",
           "calls a turn", "speedups", "half-width", "covers 1.0", "s per verdict"]  # fmt: skip
    covered = total = 0
    benches = do_bench()
    with Evaluator(protocol="verified", require_custom_kernel=False) as evaluator:
        problems = [clock_problem(operator, size) for operator, size in CLOCK_PROBLEMS]
        judged_problems: dict[str, list[tuple[Verdict | None, str, float]]] = {problem.id: [] for problem in problems}
        started = time.monotonic()
        for _ in range(repeats):
            for problem in problems:
                if time.monotonic() - started < budget_s:
                    judged_problems[problem.id].append(judge(evaluator, problem, as_submission(problem)))
    for operator, size in CLOCK_PROBLEMS:
        problem = clock_problem(operator, size)
        judged = judged_problems[problem.id]
        verdicts = [verdict for verdict, _, _ in judged if verdict is not None and verdict.speedup is not None]
        if not verdicts:
            yield [problem.id, *[""] * 9, judged[0][1]]
            continue
        speedups = [verdict.speedup for verdict in verdicts if verdict.speedup]
        covers = sum(speedup.low <= 1.0 <= speedup.high for speedup in speedups)
        covered, total = covered + covers, total + len(speedups)
        latency = statistics.median(verdict.latency_ms or 0.0 for verdict in verdicts)
        events = [v.measurement.submission_event_ms for v in verdicts if v.measurement]
        bench = benches[problem.id]
        yield [
            problem.id, number(latency), number(statistics.median(v.reference_latency_ms or 0.0 for v in verdicts)),
            number(statistics.median([event for event in events if event is not None])), number(bench),
            f"{latency / bench:.3f}", str(verdicts[0].measurement.calls_per_turn if verdicts[0].measurement else ""),
            " ".join(f"{speedup.value:.3f}" for speedup in speedups),
            f"{statistics.median((s.high - s.low) / 2 for s in speedups):.4f}", f"{covers}/{len(speedups)}",
            f"{statistics.median(seconds for _, _, seconds in judged):.1f}",
        ]  # fmt: skip
    yield ["all", *[""] * 8, f"{covered}/{total}", ""]


def do_bench() -> dict[str, float]:
    """Triton's do_bench (median; it flushes the L2 cache before each call) by problem, in a process of its own."""
    program = "import torch, triton.testing as t\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    for operator, size in CLOCK_PROBLEMS:
        shape = f"({size}, {size})" if operator == "matmul" else f"({size // 1024}, 1024)"
        program += (
            f"x = torch.rand{shape}.cuda()\nprint(t.do_bench(lambda: {_FORWARD[operator]}, return_mode='median'))\n"
        )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    return {f"{operator} {size}": float(value) for (operator, size), value in zip(CLOCK_PROBLEMS, printed, strict=True)}


def short_limits() -> Protocol:
    """`verified`, with limits that soon end what never ends."""
    protocol = get_protocol("verified")
    limits = protocol.limits.model_copy(update={"call_s": 3.0, "build_s": 20.0})
    return protocol.model_copy(update={"limits": limits})


def recovery() -> Iterator[list[str]]:
    yield VERDICT_HEADER
    problem = clock_problem("relu", 1 << 24)
    with Evaluator(protocol=short_limits(), sandbox="process") as evaluator:
        for name in ("relu_out_of_bounds", "relu_triton", "relu_endless", "relu_triton"):
            yield verdict_row(problem, name, *judge(evaluator, problem, (KERNELS / f"{name}.py").read_text()))


def sandboxes(mounts: Sequence[str]) -> Iterator[list[str]]:
    yield ["sandbox", "submission", "status", "speedup", "peak MiB", "reference's peak MiB", "isolation", "s", "notes"]
    problem = clock_problem("relu", 1 << 24)
    for sandbox in ("docker", "process"):
        settings = DockerSettings(mounts=tuple(mounts))
        with Evaluator(protocol=short_limits(), device="cuda", sandbox=sandbox, docker=settings) as evaluator:
            for name in SANDBOX_CASES:
                verdict, note, seconds = judge(evaluator, problem, (KERNELS / f"{name}.py").read_text())
                row = verdict_row(problem, name, verdict, note, seconds)
                memory, isolation = (verdict.memory, verdict.isolation) if verdict else (None, None)
                peaks = (memory.submission_peak_bytes, memory.reference_peak_bytes) if memory else ()
                yield [
                    sandbox, name, row[2], row[3], *([f"{peak / 2**20:.3f}" for peak in peaks] or ["", ""]),
                    f"{isolation.level}, {isolation.missing}" if isolation else "", row[8], row[10],
                ]  # fmt: skip


@contextlib.contextmanager
def all_but(free_bytes: int) -> Iterator[None]:
    """Another process holds the card's memory, all but `free_bytes`."""
    program = (
        "import torch, sys\nfree = torch.cuda.mem_get_info()[0]\n"
        f"x = torch.empty(free - {free_bytes}, dtype=torch.uint8, device='cuda')\nprint('held', flush=True)\n"
        "sys.stdin.read()"
    )
    hog = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hog.stdin is not None
    assert hog.stdout is not None
    try:
        hog.stdout.readline()
        yield
    finally:
        hog.stdin.close()
        hog.wait()


def capacity() -> Iterator[list[str]]:
    yield [*VERDICT_HEADER, "plan need, have (GiB)"]
    problem = load_problem("kernelbench/level1/19")
    for gigabytes in (24, 12):
        with all_but(gigabytes * 10**9), Evaluator(protocol="verified") as evaluator:
            verdict, note, seconds = judge(evaluator, problem, (KERNELS / "relu_triton.py").read_text())
            plan = verdict.device_memory if verdict and verdict.device_memory else {}
            row = verdict_row(problem, f"relu_triton, {gigabytes} GB free", verdict, note, seconds)
            yield [*row, ", ".join(f"{value / 2**30:.1f}" for value in plan.values())]


def machine() -> str:
    """One line: GPU, driver, versions."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    triton = subprocess.run(
        [sys.executable, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{gpu}; torch {torch.__version__}; triton {triton}; Python {sys.version.split()[0]}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=5, help="verdicts a problem in `clock` and `aa`")
    parser.add_argument(
        "--budget-s", type=float, default=1e9, help="`clock`, `aa` and `references` begin no verdict after this long"
    )
    parser.add_argument("--device", default="auto", help="`aa` and `references`: as of `kbenv eval`")
    parser.add_argument("--protocol", default="hardened", help="`references`: as of `kbenv eval`")
    parser.add_argument("--effort", default="full", help="`references`: as of `kbenv eval`")
    parser.add_argument("--only", help="`references`: these problems only, such as level1/50,level2/12")
    parser.add_argument("--all", action="store_true", help="`references` over all 250 problems")
    parser.add_argument("--shard", metavar="K/N", help="`references`: the K-th of N parts")
    parser.add_argument("--mount", action="append", default=[], help="`sandboxes`: as of `kbenv eval`")
    options = parser.parse_args(argv)
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"sections are {', '.join(SECTIONS)}; found {', '.join(sorted(unknown))}")
    sections = {
        "references": lambda: references(options),
        "cases": cases, "clock": lambda: clock(options.repeats, options.budget_s),
        "aa": lambda: aa(options.repeats, options.budget_s, options.device),
        "recovery": recovery, "sandboxes": lambda: sandboxes(options.mount), "capacity": capacity,
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    command = "python benchmarks/report.py " + shlex.join(sys.argv[1:] if argv is None else argv)
    for section in options.sections or SECTIONS:
        rows = sections[section]()
        header = next(rows)
        with open(options.out / f"{section}.md", "w") as file:
            file.write(f"# {section}\n\n{datetime.date.today()}; {machine()}\n\n`{command}`\n\n")
            file.write("| " + " | ".join(header) + " |\n|" + "---|" * len(header) + "\n")
            for row in rows:  # written as they come: an interrupted run keeps what it has
                line = "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in row) + " |"
                file.write(line + "\n")
                file.flush()
                print(line if section != "references" else json.dumps(row[:8]), flush=True)


if __name__ == "__main__":
    main()
