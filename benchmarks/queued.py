"""How much of the time a GPU waits on the host while many submissions are queued: benchmarks/results/queued.md.

    python benchmarks/queued.py --budget-s 280                 # a GPU; quick, then full effort
    python benchmarks/queued.py --workers 0 --effort quick     # without build workers, to compare with

Distinct CUDA submissions (the reference, its output through an element-wise kernel of our own, as in side_by_side.py)
over the problems of that comparison are put at once into a pool with one GPU, under `hardened`, with an empty build
cache. Measured from there to the last verdict, the judge's start and its measurement of the device's rates before it.

Three shares of that wall time, each larger than the one before it:

- **no work**: the judge had no job. It waited for compilers, or for its pool.
- **host**: besides, what in a job is the host's alone: the phase "build" (a process for the submission, its module,
  its extensions) and the end of a job's processes. The judge puts nothing on the device then. This is the share that
  the GPU waits on the host.
- **no kernel**: in which no kernel ran by NVML's count (`utilization.gpu` of nvidia-smi every 100 ms, each sample the
  share of its own period, of up to a second, in which one did). Beside `host` it counts every gap in a phase that uses
  the device: processes and contexts that start, launches, comparisons that are read back. By phase in the second table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import machine
from benchmarks.side_by_side import DRAW, EXTENSION, PYTHON, SMALL, TYPES, submission
from kbenv import Verdict, load_problem, open_pool
from kbenv.problems import Problem

COUNT = 16
HOST_PHASES = ("build", "end")
IDLE = "no job"
_SAMPLE_MS = 100
_CPP = '''
import ctypes
import os

from torch.utils.cpp_extension import load_inline

_SOURCE = """// PROBLEM
extern "C" void pass_on(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }
"""
load_inline("pass_on", _SOURCE, no_implicit_headers=True, is_python_module=False)
_library = ctypes.CDLL(os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "pass_on", "pass_on.so"))
_library.pass_on.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


def _pass_on(x):
    y = torch.empty_like(x)
    _library.pass_on(x.data_ptr(), y.data_ptr(), x.numel())
    return y
'''


def make_jobs(problems: Sequence[Problem], count: int, device: str) -> list[tuple[Problem, str]]:
    """So many submissions, no two of which share a source file that is compiled."""
    jobs = []
    for index in range(count):
        problem = problems[index % len(problems)]
        name = f"{problem.id} {index}"
        if device == "cpu":
            source = submission(problem, PYTHON).replace(_passes_on(submission(problem, PYTHON)), _CPP)
            source = source.replace("// PROBLEM", f"// {name}")
        else:
            form = (EXTENSION, TYPES)[index // len(problems) % 2]
            source = submission(problem, form).replace(f"// {problem.id}", f"// {name}")
        jobs.append((problem, source))
    return jobs


def _passes_on(source: str) -> str:
    """Its function that hands the output on, as it stands there."""
    start = source.index("def _pass_on")
    return source[start : source.index("\n\n\n", start)]


@dataclass
class Timeline:
    """What a judge did when, in seconds of one clock; a context manager around its time."""

    entered: list[tuple[float, str]] = field(default_factory=list)
    """Phases as they began, `IDLE` among them."""
    samples: list[tuple[float, float]] = field(default_factory=list)
    """When, and the percentage of its period in which a kernel ran."""

    def enter(self, phase: str) -> None:
        self.entered.append((time.monotonic(), phase))

    def sample(self, line: str) -> None:
        with contextlib.suppress(ValueError):  # "[N/A]"
            self.samples.append((time.monotonic(), float(line)))


def seconds_by_phase(entered: Sequence[tuple[float, str]], end: float) -> dict[str, float]:
    """How long each phase lasted in all, from the first that began to `end`."""
    seconds: dict[str, float] = defaultdict(float)
    for (began, phase), (ended, _) in zip(entered, [*entered[1:], (end, "")], strict=True):
        seconds[phase] += max(0.0, min(ended, end) - began)
    return dict(seconds)


def busy_by_phase(
    entered: Sequence[tuple[float, str]], samples: Sequence[tuple[float, float]], end: float
) -> dict[str, float]:
    """The mean of the samples that were taken in each phase; under "" of all."""
    found: dict[str, list[float]] = defaultdict(list)
    for at, value in samples:
        phase = next((phase for began, phase in reversed(entered) if began <= at), None)
        if phase is not None and at <= end:
            found[phase].append(value)
            found[""].append(value)
    return {phase: sum(values) / len(values) for phase, values in found.items()}


@contextlib.contextmanager
def sampled(timeline: Timeline, device: str) -> Iterator[None]:
    """Samples the device's utilisation meanwhile, where there is an nvidia-smi."""
    if device == "cpu" or shutil.which("nvidia-smi") is None:
        yield
        return
    command = [
        "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--loop-ms={_SAMPLE_MS}",
        f"--id={device.removeprefix('cuda:')}",
    ]  # fmt: skip
    ours, theirs = os.openpty()  # a terminal gets each line at once; a pipe might get them by the page
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs) as process:
        os.close(theirs)
        reader = threading.Thread(target=_read_samples, args=[timeline, ours])
        reader.start()
        try:
            yield
        finally:
            process.terminate()
            reader.join()


def _read_samples(timeline: Timeline, terminal: int) -> None:
    with open(terminal, encoding="utf-8") as lines, contextlib.suppress(OSError):  # its other end is closed
        for line in lines:
            timeline.sample(line)


@dataclass(frozen=True)
class Measured:
    """One queue, from its first submission to its last verdict."""

    effort: str
    workers: int
    count: int
    wall_s: float
    verdicts: Sequence[Verdict]
    faults: Sequence[str]
    phases: Mapping[str, float]
    busy: Mapping[str, float]

    def shares(self) -> tuple[float, float, float | None]:
        """No work, host, no kernel: see the module."""
        idle = self.phases.get(IDLE, 0.0)
        # The end of a job is in the last phase that it entered; its own seconds are the judge's.
        host = idle + sum(verdict.seconds.get(phase, 0.0) for verdict in self.verdicts for phase in HOST_PHASES)
        busy = self.busy.get("")
        return idle / self.wall_s, host / self.wall_s, None if busy is None else 1.0 - busy / 100


def measure(
    jobs: Sequence[tuple[Problem, str]], device: str, effort: str, workers: int | None, budget_s: float
) -> Measured:
    timeline = Timeline()
    verdicts: list[Verdict] = []
    faults: list[str] = []
    over = threading.Event()

    def on_done(future: Future[Verdict]) -> None:
        """In the judge's thread, before it looks for the next job."""
        if not future.cancelled():
            timeline.enter(IDLE)
            error = future.exception()
            verdicts.append(future.result()) if error is None else faults.append(str(error))
            if len(verdicts) + len(faults) == len(jobs):
                over.set()

    with open_pool(
        [device], protocol="hardened", effort=effort, require_custom_kernel=False, sandbox="process",
        build_workers=workers, on_phase=lambda _, phase: timeline.enter(phase),
    ) as pool:  # fmt: skip
        small = load_problem(SMALL)
        pool.evaluate(small, submission(small, PYTHON))
        timeline.entered.clear()
        with sampled(timeline, pool.device):
            started = time.monotonic()
            timeline.enter(IDLE)
            futures = [pool.submit(problem, source) for problem, source in jobs]
            for future in futures:
                future.add_done_callback(on_done)
            over.wait(budget_s)
            judged = list(verdicts), list(faults)
            end = max((at for at, phase in timeline.entered if phase == IDLE), default=started)
        count = len(pool.build_workers)
    return Measured(
        effort, count, len(jobs), max(end - started, 1e-9), *judged, seconds_by_phase(timeline.entered, end),
        busy_by_phase(timeline.entered, timeline.samples, end),
    )  # fmt: skip


def render(measured: Sequence[Measured]) -> str:
    lines = [
        "| effort | build workers | verdicts | wall s | verdicts/h | no work | **host** | no kernel | compiled in jobs "
        "| ahead s | statuses |",
        "|" + "---|" * 11,
    ]
    for one in measured:
        idle, host, empty = one.shares()
        built = [verdict.build for verdict in one.verdicts if verdict.build is not None]
        ahead = sum(build.ahead_seconds or 0.0 for build in built)
        statuses = Counter([*(verdict.status.value for verdict in one.verdicts), *("fault" for _ in one.faults)])
        cells = [
            one.effort, str(one.workers), f"{len(one.verdicts)} of {one.count}", f"{one.wall_s:.1f}",
            f"{3600 * len(one.verdicts) / one.wall_s:.0f}", f"{idle:.1%}", f"**{host:.1%}**",
            "not measured" if empty is None else f"{empty:.1%}", str(sum(build.compiled for build in built)),
            f"{ahead:.1f}", ", ".join(f"{name} {count}" for name, count in sorted(statuses.items())),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| effort | build workers | phase | s | share of wall | a kernel ran |", "|" + "---|" * 6]
    for one in measured:
        for phase, seconds in sorted(one.phases.items(), key=lambda item: -item[1]):
            busy = f"{one.busy[phase]:.0f}%" if phase in one.busy else ""
            lines.append(
                f"| {one.effort} | {one.workers} | {phase} | {seconds:.1f} | {seconds / one.wall_s:.1%} | {busy} |"
            )
    faults = sorted({fault for one in measured for fault in one.faults})
    return "\n".join([*lines, *(f"\n- fault: {fault}" for fault in faults)])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--budget-s", type=float, default=280.0, help="for all queues together, the judges' start apart"
    )
    parser.add_argument("--count", type=int, default=COUNT, help="submissions in a queue")
    parser.add_argument("--effort", action="append", choices=("quick", "full"), help="may be repeated (default: both)")
    parser.add_argument("--workers", type=int, help="build workers (default: the pool's own choice)")
    parser.add_argument("--device", default="cuda:0", help="as one of `kbenv run --devices`")
    parser.add_argument("--problem", action="append", metavar="ID", help="these instead of side_by_side.py's draw")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/queued.md"))
    options = parser.parse_args(argv)
    names = options.problem or list(dict.fromkeys(name for name, _ in DRAW))
    problems = [load_problem(name) for name in names]
    left, measured = options.budget_s, []
    for effort in options.effort or ("quick", "full"):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache  # nothing is built yet
            jobs = make_jobs(problems, options.count, options.device)
            measured.append(measure(jobs, options.device, effort, options.workers, max(1.0, left)))
        left -= measured[-1].wall_s
        command = "python benchmarks/queued.py " + shlex.join(sys.argv[1:] if argv is None else argv)
        place = machine() if options.device != "cpu" else "CPU"
        cores = len(os.sched_getaffinity(0))
        text = f"# queued\n\n{datetime.date.today()}; {place}; {cores} cores\n\n`{command}`\n\n{render(measured)}\n"
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            text, encoding="utf-8"
        )  # after each, so that a second one that is cut off costs no first
        print(text, flush=True)


if __name__ == "__main__":
    main()
