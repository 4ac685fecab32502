"""How much of other problem sets loads, runs and is judged: `benchmarks/results/problem-sets.md`.

    python benchmarks/problem_sets.py CHECKOUT... [--out FILE] [--only GLOB] [--judge] [--record FILE] [--mib N]

Every problem is loaded. Its reference runs on the CPU in a child process of its own, as the user `nobody` where this
one is root, without a network, with limits on memory and time: one call on inputs of at most `--mib`; where they are
larger, the same on PyTorch's meta device, which knows shapes alone, and then on the CPU with smaller sizes (batches of
at most four, other constants divided: `CUTS`; published models with two layers), if it still runs with them. `--judge`
has each reference that ran on the CPU, in less than `JUDGED_MS`, judged as its own answer, in the process sandbox,
under `kernelbench` with two trials and few timed calls: speed is not what is asked here. With `--record` each problem's
result is kept as a line of a file, and one that is there is not run again; `--budget-s` ends a run that may go on
later, and what it has left over is not reached.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import fnmatch
import json
import operator
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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from kbenv import Evaluator, get_protocol
from kbenv.errors import ProblemNotFoundError, SandboxError
from kbenv.problems import Problem
from kbenv.problems.loaders import Loader, kernelbench_verified, recognise
from kbenv.problems.problem import _put_constants, constant_assignments, parse_source
from kbenv.protocol import D1_D4, Precision

INPUT_MIB = 256
MEMORY_BYTES = 6 << 30
TIME_S = 20.0
"""Of processor time; three times that by the clock."""
NOBODY = 65534
CLONE_NEWNET = 0x40000000
PR_SET_KEEPCAPS, CAPABILITY_VERSION_3, CAP_DAC_READ_SEARCH = 8, 0x20080522, 1 << 2
STATES = ("cpu", "smaller", "meta", "gpu", "package", "limit", "fails")
"""What became of a reference: ran; ran with smaller sizes; ran on the meta device alone; needs a GPU; lacks a package;
ran into a limit; fails."""
JUDGED_MS = 1000.0
"""A reference that takes longer a call is not judged here."""
CUTS = ((1, 512), (4, 512), (16, 512), (64, 512), (2, 128), (4, 64), (8, 64))
"""What constants are divided by, and from which size on."""
TRIED_S = 20.0
"""After so long no smaller sizes are tried for a problem."""
HEADERS = (
    "set", "version", "licence", "problems", "load", "run on the CPU", "with smaller sizes", "on meta alone",
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
    parser.add_argument("--mib", type=int, default=INPUT_MIB, metavar="N", help="largest inputs that are drawn")
    parser.add_argument("--budget-s", type=float, default=float("inf"), metavar="N")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ends_at = time.monotonic() + arguments.budget_s
    record = Record(arguments.record)
    largest_mib = None if arguments.load_only else arguments.mib
    found = [examine(folder, arguments.only, largest_mib, record, ends_at) for folder in arguments.folders]
    if arguments.judge:
        with Judges() as judges:
            for item, folder in zip(found, arguments.folders, strict=True):
                judge(item, folder, record, judges, ends_at)
    text = report(found, largest_mib, sys.argv)
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


def examine(folder: Path, only: str, largest_mib: int | None, record: Record, ends_at: float = float("inf")) -> Found:
    """Loads one set, and runs it unless `largest_mib` is None."""
    torch.rand(1, device="meta") + 1  # loads what every child would load anew
    loader = recognise(folder)
    entries = {id: path for id, path in loader.find(folder).items() if fnmatch.fnmatch(id, only)}
    found = Found(folder.name, [] if loader is not kernelbench_verified else compare_hidden(folder), len(entries))
    for id, path in entries.items():
        if (row := record.get(folder.name, id)) is None:
            if time.monotonic() > ends_at:
                continue
            row = {"folder": folder.name, "id": id, **examine_one(id, path, loader, largest_mib, folder)}
            record.put(row)
        found.rows.append(row)
    return found


def examine_one(id: str, path: Path, loader: Loader, largest_mib: int | None, folder: Path) -> Row:
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
    started = time.monotonic()
    row["state"], row["words"], row["ms"] = run_apart(problem, largest_mib << 20)
    if row["state"] in ("meta", "limit") or row["ms"] > JUDGED_MS:
        for cut in CUTS if row["state"] != "limit" else CUTS[:2]:
            if time.monotonic() - started > TRIED_S:
                break
            state, words, ms = run_apart(smaller(problem, *cut), largest_mib << 20)
            if state == "cpu" and ms <= JUDGED_MS:
                return row | {"state": "smaller", "words": words, "ms": ms, "cut": cut}
    return row


def smaller(problem: Problem, factor: int, least: int) -> Problem:
    """The problem with batches of at most four, and its constants from `least` on divided by `factor`.

    Whether it still fits together is seen when it runs.
    """

    def shrunk(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shrunk(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(shrunk(name, item) for item in value)
        if type(value) is not int:
            return value
        if "batch" in name.lower():
            return min(value, 4)
        return max(value // factor, least // 8) if value >= least else value

    constants = {}
    for name, statement in constant_assignments(parse_source(problem.source)):
        with contextlib.suppress(ValueError):
            constants[name] = shrunk(name, _value(statement.value))
    source = _CONFIGURATION.sub(lambda match: f"{match[1]}{_few_layers(ast.literal_eval(match[2]))!r})", problem.source)
    case = {name: shrunk(name, value) for name, value in problem._case_constants().items()}
    cases = tuple(replace(one, constants=case) if one.name == problem.case else one for one in problem.cases)
    return replace(problem, source=_put_constants(source, constants), cases=cases)


_CONFIGURATION = re.compile(r"(AutoConfig\.for_model\(\*\*)({.*})\)")
_LAYERS = {"num_hidden_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "n_layer": 2}


def _few_layers(configuration: dict[str, Any]) -> dict[str, Any]:
    """A published model's configuration with two layers of each kind."""
    few = configuration | {name: value for name, value in _LAYERS.items() if name in configuration}
    if configuration.get("model_type") == "gpt2":
        few["n_layer"] = 2
    if "attention_types" in few:
        few["attention_types"] = [[kinds, 1] for kinds, _ in few["attention_types"]]
    if "attn_layers" in few:
        few["attn_layers"] = ["local", "lsh"]
    return few


def _value(node: ast.expr | None) -> Any:
    """Of a literal, or of numbers multiplied, added, subtracted. Raises ValueError: it is neither."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if type(left) is int and type(right) is int:
            return _OPERATORS[type(node.op)](left, right)
        raise ValueError("no numbers")
    try:
        return ast.literal_eval(node) if node is not None else None
    except (TypeError, SyntaxError) as e:
        raise ValueError("not a literal") from e


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


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


def run_apart(problem: Problem, largest_bytes: int) -> tuple[str, str, float]:
    """One call of the reference in a child; its state, a word on it, and the call's milliseconds."""
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
        return "limit", f"no answer within {3 * TIME_S:g} s", 0.0
    if not data:
        return "limit", "the process was killed", 0.0
    state, words, ms = json.loads(data)
    return state, words, ms


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
    answer: tuple[str, str, float]
    try:
        _confine(scratch)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            answer = _run(problem, largest_bytes, scratch)
    except BaseException as e:
        answer = _state_of(e), f"{type(e).__name__}: {' '.join(str(e).split())[:160]}", 0.0
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


def _run(problem: Problem, largest_bytes: int, scratch: str) -> tuple[str, str, float]:
    path = Path(scratch) / "problem.py"
    path.write_text(problem.source_judged("cpu"), encoding="utf-8")
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
            started = time.perf_counter()
            output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
            ms = (time.perf_counter() - started) * 1e3
    finite = all(t.isfinite().all() for t in _tensors(output) if t.is_floating_point() and t.device.type == "cpu")
    return device, "" if finite else "some of its output is not finite", ms


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

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Evaluator] = {}

    def get(self, precision: Precision) -> Evaluator:
        if precision not in self._open:
            protocol = get_protocol("kernelbench", precision)
            timing = protocol.timing.model_copy(update=QUICK)
            protocol = protocol.model_copy(update={"standard_trials": 2, "timing": timing})
            self._open[precision] = self.enter_context(Evaluator(protocol=protocol, device="cpu", sandbox="process"))
        return self._open[precision]


QUICK = {"warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 2, "runner_pairs": 1, "turns_per_pair": 2}


def judge(found: Found, folder: Path, record: Record, judges: Judges, ends_at: float) -> None:
    """Each reference that ran on the CPU as its own submission, the quick ones first."""
    loader = recognise(folder)
    paths = loader.find(folder)
    for index in sorted(range(len(found.rows)), key=lambda index: found.rows[index].get("ms", 0.0)):
        row = found.rows[index]
        if row["state"] not in ("cpu", "smaller") or "verdict" in row:
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
        verdict = judges.get(precision).evaluate(problem, f"{problem.source_for('cpu')}\n\nModelNew = Model\n")
    except SandboxError as e:
        return {"verdict": "none", "words": " ".join(str(e).split())[:160]}
    if verdict.reference_random and not verdict.credited:
        return {"verdict": "unjudged", "words": "its reference is random: it disagrees with itself on equal inputs"}
    return {"verdict": verdict.status.value, "words": "" if verdict.credited else verdict.message}


def report(found: list[Found], largest_mib: int | None, command: list[str]) -> str:
    """The table in Markdown, and what did not go as it should."""
    lines = [
        "# Other problem sets",
        "",
        f"{date.today():%Y-%m-%d}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores, no GPU; "
        f"Python {platform.python_version()}, torch {torch.__version__}. Made by `python benchmarks/problem_sets.py "
        f"CHECKOUT... {' '.join(word for word in command if word == '--judge' or word == '--load-only')}`, which says "
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
        pending = sum(row["state"] in ("cpu", "smaller") and "verdict" not in row for row in item.rows)
        cells.append(item.problems - len(item.rows) + pending)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
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
            groups.setdefault(row["words"], []).append(row["id"])
        lines += [f"- {', '.join(ids)}: {words}" for words, ids in groups.items()] or ["Nothing."]
    if hidden := [line for item in found for line in item.hidden]:
        lines += ["", "## Hidden inputs of KernelBench-Verified", "", *(f"- {line}" for line in hidden)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
