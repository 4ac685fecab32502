"""How much of other problem sets loads, runs and is judged: `benchmarks/results/problem-sets.md`.

    python benchmarks/problem_sets.py CHECKOUT... [--out FILE] [--only GLOB] [--judge] [--record FILE] [--mib N]
                                                  [--device cuda:0] [--notes FILE]

Every problem is loaded. Its reference runs on the device in a child process of its own, as the user `nobody` where this
one is root, without a network, with limits on memory and time: one call on inputs of at most `--mib` (on a GPU of any
size: it says itself what is too large); where they are larger, the same on PyTorch's meta device, which knows shapes
alone, and then on the device with smaller sizes (batches of at most four, other constants divided: `CUTS`; published
models with two layers), if it still runs with them. `--judge` has each reference that ran, in less than `JUDGED_MS`,
judged as its own answer, in the process sandbox, under `kernelbench` with two trials and few timed calls: speed is not
what is asked here. With `--record` each problem's result is kept as a line of a file, and one that is there is not run
again; `--budget-s` ends a run that may go on later, and what it has left over is not reached. `--notes` is a file of
Markdown that goes below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fnmatch
import importlib
import json
import os
import platform
import re
import resource
import signal
import struct
import sys
import tempfile
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from smaller_sizes import smaller

from kbenv import Evaluator, get_protocol
from kbenv.errors import ProblemNotFoundError, SandboxError
from kbenv.problems import Problem
from kbenv.problems.loaders import Loader, kernelbench_verified, recognise
from kbenv.protocol import D1_D4, Precision

INPUT_MIB = 256
MEMORY_BYTES = 6 << 30
TIME_S = 20.0
"""Of processor time; three times that by the clock."""
GPU_FACTOR = 3
"""On a GPU so many times that: autotuned kernels are compiled once for each of their configurations."""
NOBODY = 65534
CLONE_NEWNET = 0x40000000
PR_SET_KEEPCAPS, CAPABILITY_VERSION_3, CAP_DAC_READ_SEARCH = 8, 0x20080522, 1 << 2
STATES = ("runs", "smaller", "meta", "gpu", "package", "limit", "fails")
"""What became of a reference: ran; ran with smaller sizes; ran on the meta device alone; needs a GPU (or several);
lacks a package; ran into a limit; fails."""
WHY: Mapping[str, str] = {
    "multikernelbench/npukernelbench_level3/2_grouped_matmul": "the set's: it gives each group's first row where "
    "torch's grouped_mm wants the row after its last, so that the last group's rows are never written and hold what "
    "was in memory",
    "multikernelbench/npukernelbench_level0/20_relu_backward": "the set's: PyTorch has no such operator",
    "multikernelbench/npukernelbench_level2/24_kv_cache_update_with_rope_backward": "the set's: it draws positions "
    "below 10000 for a cache of 128",
    "multikernelbench/npukernelbench_level4/": "the set's: forward takes by name alone what its own harness passes by "
    "position, too; it needs torch_npu besides",
    "robust-kbench/mnist_pool": "the set's: its settings name an argument that its model does not take",
    "tritonbench/t/SGD": "it trains a module that it is given; modules are no inputs",
}
"""What is known of problems that do not go as they should, by what their ids begin with."""
JUDGED_MS = 1000.0
"""A reference that takes longer a call is not judged here."""
CUTS = ((1, 512), (4, 512), (16, 512), (64, 512), (2, 128), (4, 64), (8, 64))
"""What constants are divided by, and from which size on."""
TRIED_S = 20.0
"""After so long no smaller sizes are tried for a problem."""
HEADERS = (
    "set", "version", "licence", "problems", "load", "run", "with smaller sizes", "on meta alone",
    "need a GPU", "lack a package", "too large or slow", "fail", "judged as their own answer", "not judged",
    "not reached",
)  # fmt: skip
Row = dict[str, Any]


@dataclass
class Found:
    """What became of one set."""

    folder: str
    hidden: list[str]
    problems: int
    rows: list[Row] = field(default_factory=list)

    def count(self, **wanted: Any) -> int:
        return sum(all(row.get(name) == value for name, value in wanted.items()) for row in self.rows)


def main() -> int:
    """Runs the command line; returns its exit code: 1 where the budget has ended first."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="*", metavar="GLOB", help="ids to run")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--load-only", action="store_true", help="run no reference")
    parser.add_argument(
        "--mib", type=int, default=INPUT_MIB, metavar="N", help="largest inputs that are drawn on a CPU"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda:N")
    parser.add_argument("--notes", type=Path, metavar="FILE")
    parser.add_argument("--budget-s", type=float, default=float("inf"), metavar="N")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ends_at = time.monotonic() + arguments.budget_s
    record = Record(arguments.record)
    largest_mib = None if arguments.load_only else arguments.mib
    found = [
        examine(folder, arguments.only, largest_mib, record, ends_at, arguments.device) for folder in arguments.folders
    ]
    if arguments.judge:
        with Judges(arguments.device) as judges:
            for item, folder in zip(found, arguments.folders, strict=True):
                judge(item, folder, record, judges, ends_at)
    notes = arguments.notes.read_text(encoding="utf-8") if arguments.notes is not None else ""
    text = report(found, largest_mib, sys.argv, arguments.device, notes)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 1 if time.monotonic() > ends_at else 0


class Record:
    """Rows by set and problem, in a file of JSON lines where there is one: the last line on a problem counts."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[tuple[str, str], Row] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []:
            with contextlib.suppress(ValueError):  # an interrupted last one
                row = json.loads(line)
                self._rows[row["folder"], row["id"]] = row

    def get(self, folder: str, id: str) -> Row | None:
        return self._rows.get((folder, id))

    def put(self, row: Row) -> None:
        self._rows[row["folder"], row["id"]] = row
        words = row.get("verdict") or row["state"]
        print(f"{row['id']}: {words} {row.get('words', '')}", file=sys.stderr, flush=True)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")


def examine(
    folder: Path, only: str, largest_mib: int | None, record: Record, ends_at: float = float("inf"), device: str = "cpu"
) -> Found:
    """Loads one set, and runs it unless `largest_mib` is None."""
    torch.rand(1, device="meta") + 1  # loads what every child would load anew
    if device != "cpu":
        with contextlib.suppress(ImportError):
            importlib.import_module("triton.language")
    loader = recognise(folder)
    entries = {id: path for id, path in loader.find(folder).items() if fnmatch.fnmatch(id, only)}
    found = Found(folder.name, [] if loader is not kernelbench_verified else compare_hidden(folder), len(entries))
    for id, path in entries.items():
        if (row := record.get(folder.name, id)) is None:
            over = time.monotonic() > ends_at  # it is loaded all the same, which takes next to no time
            mib = None if over else largest_mib
            row = {"folder": folder.name, "id": id, **examine_one(id, path, loader, mib, folder, device)}
            if not over:
                record.put(row)
        found.rows.append(row)
    return found


def examine_one(id: str, path: Path, loader: Loader, largest_mib: int | None, folder: Path, device: str = "cpu") -> Row:
    """One problem: whether it loads, and what became of its reference."""
    try:
        problem = loader.load(id, path)
    except ProblemNotFoundError as e:
        return {"state": "refused", "words": str(e).replace(f"{folder}/", "")}
    row: Row = {"state": "loads"}
    if problem.origin is not None:
        row |= {"set": problem.origin.name, "version": problem.origin.version, "licence": problem.origin.licence}
    if largest_mib is None:
        return row
    problem = smallest_case(problem)
    row["case"] = problem.case
    if problem.contract.processes > 1:
        return row | {"state": "gpu", "words": "a group of processes", "ms": 0.0}
    started = time.monotonic()
    row["state"], row["words"], row["ms"] = run_apart(problem, largest_mib << 20, device)
    if row["state"] in ("meta", "limit") or row["ms"] > JUDGED_MS:
        for cut in CUTS if row["state"] != "limit" else CUTS[:2]:
            if time.monotonic() - started > TRIED_S:
                break
            state, words, ms = run_apart(smaller(problem, *cut), largest_mib << 20, device)
            if state == "runs" and ms <= JUDGED_MS:
                return row | {"state": "smaller", "words": words, "ms": ms, "cut": cut}
    return row


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


def run_apart(problem: Problem, largest_bytes: int, device: str = "cpu") -> tuple[str, str, float]:
    """One call of the reference in a child; its state, a word on it, and the call's milliseconds."""
    readable, writable = os.pipe()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        child = os.fork()
        if child == 0:
            os.close(readable)
            _run_and_exit(problem, largest_bytes, device, writable, scratch)
        os.close(writable)
        with os.fdopen(readable, "rb") as answer:
            ended = _wait(child, 3 * _time_s(device))
            data = answer.read()
    if not ended:
        return "limit", f"no answer within {3 * _time_s(device):g} s", 0.0
    if not data:
        return "limit", "the process was killed", 0.0
    state, words, ms = json.loads(data)
    return state, words, ms


def _time_s(device: str) -> float:
    return TIME_S if device == "cpu" else GPU_FACTOR * TIME_S


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


def _run_and_exit(problem: Problem, largest_bytes: int, device: str, writable: int, scratch: str) -> None:
    """In the child: gives up what it can, runs the reference, writes the answer."""
    answer: tuple[str, str, float]
    try:
        _confine(scratch, device)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            answer = _run(problem, largest_bytes, device, scratch)
    except BaseException as e:
        answer = _state_of(e), f"{type(e).__name__}: {' '.join(str(e).split())[:160]}", 0.0
    os.write(writable, json.dumps(answer).encode())
    os._exit(0)


def _confine(scratch: str, device: str) -> None:
    os.chdir(scratch)
    if device == "cpu":  # a CUDA context maps more than that by itself
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(_time_s(device)),) * 2)
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
    tempfile.tempdir = None  # which it remembers: the parent's, where this user may write nothing


def _run(problem: Problem, largest_bytes: int, wanted_device: str, scratch: str) -> tuple[str, str, float]:
    path = Path(scratch) / "problem.py"
    path.write_text(problem.source_judged(wanted_device), encoding="utf-8")
    module = sys.modules["problem"] = types.ModuleType("problem")  # dataclasses look themselves up there
    namespace = vars(module)
    namespace["__file__"] = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    with torch.no_grad():
        try:
            with torch.device("meta"):
                inputs = [] if wanted_device != "cpu" else _tensors(namespace["get_inputs"]())
        except Exception:
            inputs = []  # it reads values, or insists on the CPU: then draw in earnest, under the limits
        # On a GPU that says itself what is too large, a set's own test, which draws them, would launch kernels on them.
        size = sum(t.numel() * t.element_size() for t in inputs)
        device = wanted_device if size <= largest_bytes else "meta"
        torch.manual_seed(0)
        try:
            output, ms = _call(namespace, device)
        except Exception as e:
            if device == "meta":
                return "limit", f"too large, and on the meta device: {type(e).__name__}: {str(e)[:100]}", 0.0
            raise
        finite = all(t.isfinite().all() for t in _tensors(output) if t.is_floating_point() and t.device.type != "meta")
    return "meta" if device == "meta" else "runs", "" if finite else "some of its output is not finite", ms


def _call(namespace: Mapping[str, Any], device: str) -> tuple[Any, float]:
    """What forward returns, and its milliseconds, what it compiles included."""
    with torch.device(device):
        wanted = namespace["get_init_inputs"]()
        model = namespace["Model"](**wanted) if isinstance(wanted, dict) else namespace["Model"](*wanted)
        inputs = namespace["get_inputs"]()
        started = time.perf_counter()
        output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        if device not in ("cpu", "meta"):
            torch.cuda.synchronize()
            if (time.perf_counter() - started) * 1e3 > JUDGED_MS:  # it has compiled something
                started = time.perf_counter()
                output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
                torch.cuda.synchronize()
        return output, (time.perf_counter() - started) * 1e3


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


class Judges(contextlib.ExitStack):
    """Evaluators by precision, each warm from problem to problem."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.device = device
        self._open: dict[str, Evaluator] = {}

    def get(self, precision: Precision) -> Evaluator:
        if precision not in self._open:
            protocol = get_protocol("kernelbench", precision)
            timing = protocol.timing.model_copy(update=QUICK)
            protocol = protocol.model_copy(update={"standard_trials": 2, "timing": timing})
            evaluator = Evaluator(protocol=protocol, device=self.device, sandbox="process")
            self._open[precision] = self.enter_context(evaluator)
        return self._open[precision]


QUICK = {"warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 2, "runner_pairs": 1, "turns_per_pair": 2}


def judge(found: Found, folder: Path, record: Record, judges: Judges, ends_at: float) -> None:
    """Each reference that ran on the CPU as its own submission, the quick ones first."""
    loader = recognise(folder)
    paths = loader.find(folder)
    for index in sorted(range(len(found.rows)), key=lambda index: found.rows[index].get("ms", 0.0)):
        row = found.rows[index]
        if row["state"] not in ("runs", "smaller") or "verdict" in row:
            continue
        if time.monotonic() > ends_at:
            return
        problem = loader.load(row["id"], paths[row["id"]])
        problem = problem if row["case"] is None else problem.for_case(row["case"])
        problem = smaller(problem, *row["cut"]) if row["state"] == "smaller" else problem
        found.rows[index] = row | judge_one(problem, row, judges)
        record.put(found.rows[index])


def judge_one(problem: Problem, row: Row, judges: Judges) -> Row:
    precision = problem.own_precision or "fp32"
    if (why := problem.why_unjudged(precision)) is not None:
        return {"verdict": "unjudged", "words": why}
    if row["ms"] > JUDGED_MS:
        return {"verdict": "unjudged", "words": "a call takes too long here"}
    try:
        source = f"{problem.source_for(judges.device)}\n\nModelNew = Model\n"
        verdict = judges.get(precision).evaluate(problem, source)
    except SandboxError as e:
        return {"verdict": "none", "words": " ".join(str(e).split())[:160]} | _refusal(str(e))
    if verdict.reference_random and not verdict.credited:
        return {"verdict": "unjudged", "words": "its reference is random: it disagrees with itself on equal inputs"}
    return {"verdict": verdict.status.value, "words": "" if verdict.credited else verdict.message}


def _refusal(message: str) -> Row:
    """What the judge does not do, of what it says; empty where it is something else."""
    if match := re.search(r"UnsupportedError: a value of type \w+ cannot be passed", message):
        return {"verdict": "unjudged", "words": f"{match[0].partition(': ')[2]} between processes"}
    if "expected shape" in message:
        return {"verdict": "unjudged", "words": "the shapes of its outputs depend on the values that are drawn"}
    return {}


def report(
    found: list[Found], largest_mib: int | None, command: list[str], device: str = "cpu", notes: str = ""
) -> str:
    """The table in Markdown, and what did not go as it should."""
    options = " ".join(word for word in command if word in ("--judge", "--load-only"))
    lines = [
        "# Other problem sets",
        "",
        f"{date.today():%Y-%m-%d}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"{_gpu(device)}; Python {platform.python_version()}, torch {torch.__version__}. "
        f"Made by `python benchmarks/problem_sets.py CHECKOUT... {options}`, which says "
        f"what each column means; inputs of at most {largest_mib} MiB were drawn. For a problem with several cases one "
        "that is small has run.",
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|" + "---|" * len(HEADERS),
    ]
    for item in found:
        facts = next((row for row in item.rows if "set" in row), {})
        judged = [row["verdict"] for row in item.rows if row.get("verdict", "unjudged") != "unjudged"]
        loaded = len(item.rows) - item.count(state="refused")
        cells = [facts.get("set"), str(facts.get("version") or "unknown")[:17], facts.get("licence")]
        cells += [item.problems, loaded, *(item.count(state=state) for state in STATES)]
        cells += [f"{judged.count('PASSED')} of {len(judged)}" if judged else "-", item.count(verdict="unjudged")]
        started = ("runs", "smaller")
        cells.append(sum(r["state"] == "loads" or (r["state"] in started and "verdict" not in r) for r in item.rows))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if notes:
        lines += ["", notes.strip()]
    rows = [row for item in found for row in item.rows]
    wrong = [row for row in rows if row.get("verdict", "PASSED") not in ("PASSED", "unjudged")]
    parts = {
        "What does not load": [row for row in rows if row["state"] == "refused"],
        "References that fail": [row for row in rows if row["state"] == "fails"],
        "Not judged": [row for row in rows if row.get("verdict") == "unjudged"],
        "Not credited as their own answer": [row | {"words": f"{row['verdict']}: {row['words']}"} for row in wrong],
    }
    for title, listed in parts.items():
        lines += ["", f"## {title}", ""]
        groups: dict[str, list[str]] = {}
        for row in listed:
            why = [words for start, words in WHY.items() if row["id"].startswith(start)]
            groups.setdefault(" - ".join([row["words"], *why]), []).append(row["id"])
        lines += [f"- {', '.join(ids)}: {words}" for words, ids in groups.items()] or ["Nothing."]
    if hidden := [line for item in found for line in item.hidden]:
        lines += ["", "## Hidden inputs of KernelBench-Verified", "", *(f"- {line}" for line in hidden)]
    return "\n".join(lines) + "\n"


def _gpu(device: str) -> str:
    return "no GPU" if device == "cpu" else torch.cuda.get_device_name(device)


if __name__ == "__main__":
    sys.exit(main())
