"""What there is to gain on kbenv's own problems: `benchmarks/results/headroom.md`.

    python benchmarks/headroom.py [PATTERN] [--budget-s N] [--workers N] [--out FILE] [--record FILE] [--no-compile]

For each problem at its GPU sizes: PyTorch's time in eager mode with TF32 on, that of `torch.compile`, and the roofline,
the longer of moving inputs, parameters and outputs once and of doing the reference's products, both at the speed that
this device shows on a copy and on a TF32 product. Headroom is eager time over the roofline, and over `torch.compile`;
a problem of levels 1 and 2 with less than 1.1 over the roofline has nothing to show.

Times are medians of CUDA events with a cold L2; what a call enqueues waits behind an idle device until all of it is
there, so that they hold no launches. Several processes build and compile, and all but one stand still while that one
times. It is enough to choose problems by, and no judgement. Each problem's figures are a line of `--record` as soon as
they are there: a second run goes on where the budget ended. `--device cpu` is a rehearsal at the CPU sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import platform
import queue
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch

from kbenv.problems import Problem, list_problems, load_problem
from kbenv.problems.loaders import core

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
CALLS = 15
LEAST = 1.1
MEMORY_BYTES = 20e9
TIME_MS = (0.1, 10.0)
"""Between which an eager call should last."""
SETTLE_S = 0.02
"""After the others stand still: what they had enqueued is done by then."""
COMPILE_S = 120.0
"""A process that takes longer for one problem is ended, and the problem has no figure for torch.compile."""
BUDGET_SHARE = 0.9
CYCLES_PER_MS = 2e6
"""Of the device's clock, roughly, for an idle kernel's length."""


def main() -> int:
    """Runs the command line; returns its exit code: 1 where problems are left for another run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="core/*")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--budget-s", type=float, default=280.0, metavar="N")
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 2)), metavar="N")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "headroom.md")
    parser.add_argument("--record", type=Path, default=RESULTS / "headroom.jsonl")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("headroom: needs a CUDA device; --device cpu rehearses", file=sys.stderr)
        return 2
    exercises = core.EXERCISES if arguments.pattern == "core/*" else ()
    problems = list_problems(",".join([arguments.pattern, *exercises]))
    rows = read_record(arguments.record)
    wanted = {key(problem, arguments.device): problem for problem in problems}
    missing = [problem for found, problem in wanted.items() if found not in rows]
    if missing:
        pool = Pool(arguments, ends_at=time.monotonic() + BUDGET_SHARE * arguments.budget_s)
        with arguments.record.open("a", encoding="utf-8") as lines:
            for row in pool.run(missing):
                rows[row["key"]] = row
                lines.write(json.dumps(row) + "\n")
                lines.flush()
                print(short(row), file=sys.stderr, flush=True)
    found = [rows[name] for name in wanted if name in rows]
    left = [problem.id for name, problem in wanted.items() if name not in rows]
    text = report(found, left, arguments)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 1 if left else 0


def key(problem: Problem, device: str) -> str:
    """What a row's figures belong to: the source as it ran, and where."""
    source = hashlib.sha256(problem.source_for(device).encode()).hexdigest()[:16]
    return f"{problem.id} {source} {device} torch-{torch.__version__}"


def read_record(path: Path) -> dict[str, Row]:
    """The rows that are there, by their key; an interrupted last line counts as none."""
    rows: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            rows[row["key"]] = row
    return rows


class Pool:
    """Processes that build and compile at once, and time one after the other."""

    def __init__(self, arguments: argparse.Namespace, ends_at: float) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._device: str = arguments.device
        self._compile = not arguments.no_compile
        self._workers: int = arguments.workers
        self._ends_at = ends_at
        self._reports: Any = self._context.Queue()
        self._processes: dict[int, Any] = {}
        self._grants: dict[int, Any] = {}
        self._tasks: Any = self._context.Queue()
        self._at_work: dict[int, tuple[str, float]] = {}
        self._again: set[str] = set()

    def run(self, problems: list[Problem]) -> Iterator[Row]:
        """Rows as they come, until all are there or the time is over. What compiles longest begins first."""
        pending = {problem.id for problem in problems}
        for problem in sorted(problems, key=lambda one: -(one.level or 0)):
            self._tasks.put((problem.id, self._compile))
        for index in range(min(self._workers, len(problems))):
            self._start(index)
        try:
            while pending and time.monotonic() < self._ends_at:
                try:
                    index, kind, content = self._reports.get(timeout=0.5)
                except queue.Empty:
                    self._end_the_slow(pending)
                    continue
                if kind == "begins":
                    self._at_work[index] = (content, time.monotonic())
                elif kind == "wants to time":
                    self._let_alone(index)
                elif kind == "row" and content["id"] in pending:
                    self._at_work.pop(index, None)
                    if content.get("error", "").startswith("OutOfMemoryError") and content["id"] not in self._again:
                        self._again.add(content["id"])  # others had the memory; they are fewer at the end
                        self._tasks.put((content["id"], self._compile))
                        continue
                    pending.discard(content["id"])
                    yield content
        finally:
            for process in self._processes.values():
                process.kill()

    def _start(self, index: int) -> None:
        self._grants[index] = self._context.Event()
        process = self._context.Process(
            target=work, args=(index, self._device, self._tasks, self._reports, self._grants[index]), daemon=True
        )
        process.start()
        self._processes[index] = process

    def _let_alone(self, index: int) -> None:
        """One times while the others stand still."""
        others = [process for other, process in self._processes.items() if other != index and process.is_alive()]
        for process in others:
            os.kill(process.pid, signal.SIGSTOP)
        time.sleep(SETTLE_S)
        started = time.monotonic()
        self._grants[index].set()
        # The grant is taken back by the worker when it has timed.
        while self._grants[index].is_set() and self._processes[index].is_alive():
            if time.monotonic() - started > COMPILE_S:
                break
            time.sleep(0.002)
        for process in others:
            os.kill(process.pid, signal.SIGCONT)
        for other, (id, since) in self._at_work.items():
            if other != index:  # it stood still for no fault of its own
                self._at_work[other] = (id, since + time.monotonic() - started)

    def _end_the_slow(self, pending: set[str]) -> None:
        """Processes that died, or that compile for too long: another takes their place, and the problem without."""
        for index, process in list(self._processes.items()):
            id, since = self._at_work.get(index, ("", time.monotonic()))
            if process.is_alive() and time.monotonic() - since < COMPILE_S:
                continue
            if process.exitcode == 0:
                continue  # there was nothing left to do
            process.kill()
            self._at_work.pop(index, None)
            if id in pending:
                self._tasks.put((id, False))
            self._start(index)


def work(index: int, device: str, tasks: Any, reports: Any, grant: Any) -> None:
    """A process's life: problem after problem, until there is none for a while."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        reports.put((index, "wants to time", None))
        grant.wait()
        try:
            yield
        finally:
            grant.clear()

    while True:
        try:
            id, compiles = tasks.get(timeout=30.0)
        except queue.Empty:
            return
        reports.put((index, "begins", id))
        problem = load_problem(id)
        row: Row = {"id": id, "key": key(problem, device), "level": problem.level, "category": problem.category}
        try:
            row |= measure(problem, device, compiles, alone)
        except Exception as e:
            row["error"] = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
        reports.put((index, "row", row))
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()


def measure(
    problem: Problem, device: str, compiles: bool, alone: Callable[[], contextlib.AbstractContextManager[None]]
) -> Row:
    """The figures of one problem."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(compile(problem.source_for(device), "problem.py", "exec"), namespace)
    torch.manual_seed(0)
    started = time.perf_counter()
    with torch.no_grad():
        with torch.device(device):
            inputs = namespace["get_inputs"]()
        model = namespace["Model"](*namespace["get_init_inputs"]()).to(device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        outputs = model(*inputs)
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        row: Row = {
            "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
            "rms": [float(f"{leaf.double().square().mean().sqrt().item():.3g}") for leaf in tensors],
            "finite": all(bool(leaf.isfinite().all()) for leaf in tensors),
        }
        del outputs, tensors
        with alone():
            bytes_per_s, flop_per_s = measure_device(device)
            row["eager_ms"] = time_ms(lambda: model(*inputs), device)
        row |= {"bytes_per_s": bytes_per_s, "flop_per_s": flop_per_s}
        row["roofline_ms"] = 1e3 * max(
            float(problem.hints["bytes"]) / bytes_per_s, float(problem.hints["flops"]) / flop_per_s
        )
        if compiles:
            compiled = torch.compile(model)
            try:
                compiled(*inputs)
                row["compile_s"] = round(time.perf_counter() - started, 1)
                with alone():
                    row["compiled_ms"] = time_ms(lambda: compiled(*inputs), device)
            except Exception as e:
                row["compile_error"] = f"{type(e).__name__}: {' '.join(str(e).split())[:120]}"
    return row


_DEVICE_RATES: dict[str, tuple[float, float]] = {}


def measure_device(device: str) -> tuple[float, float]:
    """Bytes a second of a copy (read and written), and operations a second of a TF32 product; once a process."""
    if device not in _DEVICE_RATES:
        size, rows = (1 << 29, 8192) if device == "cuda" else (1 << 24, 1024)
        source = torch.empty(size, device=device)
        target = torch.empty_like(source)
        copied_ms = time_ms(lambda: target.copy_(source), device)
        del source, target
        a, b = (torch.randn(rows, rows, device=device) for _ in range(2))
        product_ms = time_ms(lambda: a @ b, device)
        del a, b
        if device == "cuda":
            torch.cuda.empty_cache()  # a dozen processes share the memory
        _DEVICE_RATES[device] = 2 * size * 4 / copied_ms * 1e3, 2 * rows**3 / product_ms * 1e3
    return _DEVICE_RATES[device]


def time_ms(call: Callable[[], Any], device: str) -> float:
    """The median of some calls, each with a cold L2 and everything enqueued before it begins."""
    for _ in range(2):
        call()
    if device == "cpu":
        return statistics.median(_host_ms(call) for _ in range(5))
    torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    enqueued_ms = (time.perf_counter() - started) * 1e3
    torch.cuda.synchronize()
    cold = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(CALLS):
        cold.zero_()
        torch.cuda._sleep(int(CYCLES_PER_MS * min(0.2 + 1.5 * enqueued_ms, 100.0)))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def _host_ms(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def short(row: Row) -> str:
    """A row in a line, for those who wait."""
    if "error" in row:
        return f"{row['id']}: {row['error']}"
    compiled = f"{row['compiled_ms']:.3g}" if "compiled_ms" in row else row.get("compile_error", "-")
    return f"{row['id']}: eager {row['eager_ms']:.3g} ms, compiled {compiled}, roofline {row['roofline_ms']:.3g}"


def report(rows: list[Row], left: list[str], arguments: argparse.Namespace) -> str:
    """The table in Markdown, what it says of dropping, and which sizes are doubtful."""
    measured = [row for row in rows if "eager_ms" in row]
    copy, product = (
        statistics.median(row[name] for row in measured) / 1e12 if measured else 0.0
        for name in ("bytes_per_s", "flop_per_s")
    )
    machine = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{platform.machine()}, a rehearsal"
    lines = [
        "# Headroom of kbenv's own problems",
        "",
        f"{date.today():%Y-%m-%d}; {machine}; Python {platform.python_version()}, torch {torch.__version__}. Made by "
        f"`python benchmarks/headroom.py`. The roofline: {copy:.2f} TB/s (a copy), {product:.3g} TFLOP/s (a TF32 "
        "product). RMS: root mean square of each output.",
        "",
        "| problem | eager, ms | torch.compile, ms | roofline, ms | over the roofline | over torch.compile | peak, GB "
        "| RMS |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['id']} | {row['error'][:80]} | | | | | | |")
            continue
        compiled = ("", "")
        if "compiled_ms" in row:
            compiled = f"{row['compiled_ms']:.3g}", f"{row['eager_ms'] / row['compiled_ms']:.2f}"
        elif "compile_error" in row:
            compiled = "failed", ""
        peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.2f}"
        lines.append(
            f"| {row['id']} | {row['eager_ms']:.3g} | {compiled[0]} | {row['roofline_ms']:.3g} | "
            f"{row['eager_ms'] / row['roofline_ms']:.2f} | {compiled[1]} | {peak} | "
            f"{', '.join(f'{value:.2g}' for value in row['rms'])} |"
        )
    low = [row["id"] for row in measured if row["level"] in (1, 2) and row["eager_ms"] / row["roofline_ms"] < LEAST]
    slower = [row["id"] for row in measured if "compiled_ms" in row and row["eager_ms"] / row["compiled_ms"] < 1.0]
    odd = [
        row["id"] for row in measured
        if not TIME_MS[0] <= row["eager_ms"] <= TIME_MS[1] or (row["peak_bytes"] or 0) > MEMORY_BYTES
    ]  # fmt: skip
    fine = [row["id"] for row in measured if row["id"] in core.EXERCISES and row["id"] not in low]
    lines += [
        "",
        f"Of levels 1 and 2 below {LEAST} over the roofline, to be exercises (`problems/loaders/core.py`): "
        f"{', '.join(low) or 'none'}. Exercises that are above: {', '.join(fine) or 'none'}.",
        "",
    ]
    lines.append(f"Slower under torch.compile than in eager mode: {', '.join(slower) or 'none'}.")
    lines.append(
        f"Outside {TIME_MS[0]:g} to {TIME_MS[1]:g} ms, or above {MEMORY_BYTES / 1e9:g} GB: {', '.join(odd) or 'none'}."
    )
    if infinite := [row["id"] for row in measured if not row["finite"]]:
        lines.append(f"Not finite: {', '.join(infinite)}.")
    if errors := [f"{row['id']} ({row['compile_error']})" for row in rows if "compile_error" in row]:
        lines.append(f"Not compiled: {'; '.join(errors)}.")
    if left:
        lines.append(f"Not reached within the budget: {', '.join(left)}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
