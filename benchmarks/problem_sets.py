"""How much of other problem sets loads, and how many of their references run: `benchmarks/results/problem-sets.md`.

    python benchmarks/problem_sets.py CHECKOUT... [--out FILE] [--only GLOB] [--judge N] [--record FILE] [--mib N]

Every problem is loaded. Its reference runs on the CPU in a child process of its own, as the user `nobody` where this
one is root, without a network, with limits on memory and time: one call on inputs of at most `--mib`; where they are
larger, the same on PyTorch's meta device, which knows shapes alone. `--judge N` has the first N references of each set
that ran, spread over the set, judged as their own answers, under the protocol `kernelbench`, in the process sandbox.
With `--record` each set's result is kept as a line of a file, and a set that is there is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fnmatch
import json
import os
import platform
import resource
import signal
import struct
import sys
import tempfile
import time
import types
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

from kbenv.errors import ProblemNotFoundError, SandboxError
from kbenv.problems import Problem
from kbenv.problems.loaders import kernelbench_verified, recognise
from kbenv.protocol import D1_D4

INPUT_MIB = 256
MEMORY_BYTES = 6 << 30
TIME_S = 20.0
"""Of processor time; three times that by the clock."""
NOBODY = 65534
CLONE_NEWNET = 0x40000000
PR_SET_KEEPCAPS, CAPABILITY_VERSION_3, CAP_DAC_READ_SEARCH = 8, 0x20080522, 1 << 2
STATES = ("cpu", "meta", "gpu", "package", "limit", "fails")
"""What became of a reference: ran; ran on the meta device; needs a GPU; lacks a package; ran into a limit; fails."""
HEADERS = (
    "set", "version", "licence", "problems", "load", "MiB", "run on the CPU", "on meta", "need a GPU", "lack a package",
    "too large or slow", "fail", "judged as their own answer",
)  # fmt: skip


@dataclass
class Found:
    """What became of one set."""

    name: str
    version: str | None
    licence: str | None
    problems: int = 0
    loaded: int = 0
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    largest_mib: int | None = INPUT_MIB
    credited: int = 0


def main() -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="*", metavar="GLOB", help="ids to run")
    parser.add_argument("--judge", type=int, default=0, metavar="N")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--load-only", action="store_true", help="run no reference")
    parser.add_argument("--mib", type=int, default=INPUT_MIB, metavar="N", help="largest inputs that are drawn")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = read_record(arguments.record)
    found = []
    for folder in arguments.folders:
        if folder.name not in known:
            known[folder.name] = examine(
                folder, arguments.only, arguments.judge, None if arguments.load_only else arguments.mib
            )
            if arguments.record is not None:
                with arguments.record.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps({"folder": folder.name, **asdict(known[folder.name])}) + "\n")
        found.append(known[folder.name])
    text = report(found, judged=arguments.judge > 0)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def read_record(path: Path | None) -> dict[str, Found]:
    """What is on record, by the checkout's name."""
    if path is None or not path.exists():
        return {}
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {entry.pop("folder"): Found(**entry) for entry in entries}


def examine(folder: Path, only: str, judged: int, largest_mib: int | None = INPUT_MIB) -> Found:
    """Loads one set, and runs it unless `largest_mib` is None."""
    torch.rand(1, device="meta") + 1  # loads what every child would load anew
    loader = recognise(folder)
    entries = {id: path for id, path in loader.find(folder).items() if fnmatch.fnmatch(id, only)}
    found, running = Found(folder.name, None, None, problems=len(entries), largest_mib=largest_mib), []
    for id, path in entries.items():
        try:
            problem = loader.load(id, path)
        except ProblemNotFoundError as e:
            found.refused.append(f"{id}: {str(e).replace(str(folder) + '/', '')}")
            continue
        found.loaded += 1
        if problem.origin is not None:
            found.name, found.version, found.licence = (
                problem.origin.name, problem.origin.version, problem.origin.licence,
            )  # fmt: skip
        if largest_mib is None:
            continue
        problem = smallest_case(problem)
        state, words = run_apart(problem, largest_mib << 20)
        found.states[state] += 1
        print(f"{problem.id}: {state} {words}", file=sys.stderr, flush=True)
        if state == "fails":
            found.failed.append(f"{problem.id}: {words}")
        if state == "cpu" and problem.why_unjudged(precision_of(problem)) is None:
            running.append(problem)
    found.hidden = [] if loader is not kernelbench_verified else compare_hidden(folder)
    judge(running[:: max(1, len(running) // judged)][:judged] if judged else [], found)
    return found


def compare_hidden(folder: Path) -> list[str]:
    """KernelBench-Verified's hidden inputs against the factors that kbenv's protocols draw them with."""
    ours: dict[str, float | None] = {hidden.name: hidden.factor for hidden in D1_D4}
    agree, lines = 0, []
    for path in sorted(folder.glob("hidden_tests/*/*_hidden.py")):
        text = path.read_text(encoding="utf-8")
        theirs, left_out = kernelbench_verified.hidden_inputs(text), kernelbench_verified.filtered(text)
        common = {name: factor for name, factor in theirs.items() if name in ours}
        if common == {name: factor for name, factor in ours.items() if name not in left_out}:
            agree += 1
        else:
            lines.append(f"{path.parent.name}/{path.name}: {common} instead of {ours}")
        if len(common) < len(theirs) or left_out:
            more = ", ".join(sorted(set(theirs) - set(ours))) or "none"
            lines.append(
                f"{path.parent.name}/{path.name}: leaves out {', '.join(left_out) or 'none'}; has besides: {more}"
            )
    return [f"{agree} files agree with D1-D4 (x1, x3, x0.01, x-1)", *lines]


def smallest_case(problem: Problem) -> Problem:
    """The first case that is only checked, which is small in most sets, else the first."""
    if len(problem.cases) < 2:
        return problem
    checked = [case.name for case in problem.cases if case.role == "public"]
    return problem.for_case((checked or [problem.cases[0].name])[0])


def run_apart(problem: Problem, largest_bytes: int) -> tuple[str, str]:
    """One call of the reference in a child; its state and a word on it."""
    readable, writable = os.pipe()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        child = os.fork()
        if child == 0:
            os.close(readable)
            _run_and_exit(problem, largest_bytes, writable, scratch)
        os.close(writable)
        with os.fdopen(readable, "rb") as answer:
            ended = _wait(child, 3 * TIME_S)
            data = answer.read()
    if not ended:
        return "limit", f"no answer within {3 * TIME_S:g} s"
    if not data:
        return "limit", "the process was killed"
    state, words = json.loads(data)
    return state, words


def _wait(child: int, seconds: float) -> bool:
    """Whether the child ended by itself; otherwise it is killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_and_exit(problem: Problem, largest_bytes: int, writable: int, scratch: str) -> None:
    """In the child: gives up what it can, runs the reference, writes the answer."""
    answer: tuple[str, str]
    try:
        _confine(scratch)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            answer = _run(problem, largest_bytes, scratch)
    except BaseException as e:
        answer = _state_of(e), f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
    os.write(writable, json.dumps(answer).encode())
    os._exit(0)


def _confine(scratch: str) -> None:
    os.chdir(scratch)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(TIME_S), int(TIME_S)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.unshare(CLONE_NEWNET)
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        # It may still read what an interpreter in root's own folder imports late; write it may not.
        header, sets = (
            struct.pack("II", CAPABILITY_VERSION_3, 0),
            struct.pack("6I", *[CAP_DAC_READ_SEARCH] * 2, *[0] * 4),
        )
        if libc.capset(header, sets) != 0:
            raise OSError(ctypes.get_errno(), "capset failed")
    os.environ.update(HOME=scratch, TMPDIR=scratch, TRITON_CACHE_DIR=scratch)


def _run(problem: Problem, largest_bytes: int, scratch: str) -> tuple[str, str]:
    path = Path(scratch) / "problem.py"
    path.write_text(problem.source_for("cpu"), encoding="utf-8")
    module = sys.modules["problem"] = types.ModuleType("problem")  # dataclasses look themselves up there
    namespace = vars(module)
    namespace["__file__"] = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    with torch.no_grad():
        try:
            with torch.device("meta"):
                size = sum(t.numel() * t.element_size() for t in _tensors(namespace["get_inputs"]()))
        except Exception:
            size = 0  # it reads values, or insists on the CPU: then draw in earnest, under the limits
        device = "cpu" if size <= largest_bytes else "meta"
        torch.manual_seed(0)
        with torch.device(device):
            wanted = namespace["get_init_inputs"]()
            model = namespace["Model"](**wanted) if isinstance(wanted, dict) else namespace["Model"](*wanted)
            inputs = namespace["get_inputs"]()
            output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    finite = all(t.isfinite().all() for t in _tensors(output) if t.is_floating_point() and t.device.type == "cpu")
    return device, "" if finite else "some of its output is not finite"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _state_of(error: BaseException) -> str:
    words = str(error)
    if isinstance(error, ImportError):
        return "package"
    if isinstance(error, MemoryError) or "not enough memory" in words or "allocate memory" in words:
        return "limit"
    if any(
        word in words
        for word in (
            "CUDA",
            "cuda",
            "NVIDIA",
            "0 active drivers",
            "Triton",
            "not implemented on the CPU",
            "scaling configuration",
        )
    ):
        return "gpu"
    return "fails"


def precision_of(problem: Problem) -> str:
    """The one that the set fixes, else fp32."""
    return problem.own_precision or "fp32"


def judge(problems: list[Problem], found: Found) -> None:
    """Each reference as its own submission."""
    if not problems:
        return
    from kbenv import Evaluator

    for problem in problems:
        source = f"{problem.source_for('cpu')}\n\nModelNew = Model\n"
        try:
            with Evaluator(
                protocol="kernelbench", precision=precision_of(problem), device="cpu", sandbox="process"
            ) as evaluator:  # type: ignore[arg-type]
                verdict = evaluator.evaluate(problem, source)
        except SandboxError as e:
            found.judged.append(f"{problem.id}: no verdict: {' '.join(str(e).split())[:160]}")
            continue
        found.credited += verdict.credited
        found.judged.append(f"{problem.id}: {verdict.status}")
        print(found.judged[-1], file=sys.stderr, flush=True)


def report(found: list[Found], *, judged: bool) -> str:
    """The table in Markdown."""
    lines = [
        "# Other problem sets",
        "",
        f"{date.today():%Y-%m-%d}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores, no GPU; "
        f"Python {platform.python_version()}, torch {torch.__version__}. Made by `python benchmarks/problem_sets.py "
        f"CHECKOUT...{' --judge N' if judged else ''}`, which says what each column means. For a problem with several "
        "cases one that is small has run; MiB: the largest inputs that were drawn.",
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|" + "---|" * len(HEADERS),
    ]
    for item in found:
        ran = item.largest_mib is not None
        cells = [item.name, (item.version or "unknown")[:17], item.licence, item.problems, item.loaded]
        cells += [item.largest_mib, *(item.states[state] for state in STATES)] if ran else ["-"] * (len(STATES) + 1)
        cells.append(f"{item.credited} of {len(item.judged)}" if item.judged else "-")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for title, name in (("What does not load", "refused"), ("References that fail", "failed")):
        lines += ["", f"## {title}", ""]
        lines += [f"- {line}" for item in found for line in getattr(item, name)] or ["Nothing."]
    if hidden := [line for item in found for line in item.hidden]:
        lines += ["", "## Hidden inputs of KernelBench-Verified", "", *(f"- {line}" for line in hidden)]
    if judged:
        lines += ["", "## Not credited as their own answer", ""]
        lines += [f"- {line}" for item in found for line in item.judged if not line.endswith(": PASSED")] or [
            "Nothing."
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
