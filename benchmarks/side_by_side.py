"""How long a verdict takes, beside upstream's evaluator: benchmarks/results/side-by-side.md.

    python benchmarks/side_by_side.py --upstream CHECKOUT --budget-s 480      # a GPU; again, until nothing is left

On a fixed draw of KernelBench problems (KBENV_KERNELBENCH) each submission is the reference with its output handed
through an element-wise kernel of our own, in one of four forms, so that it is right whatever the problem: what is
compared is what judging costs. Upstream's `eval_kernel_against_ref` (5 correctness, 100 timing trials, nothing built
before) runs in a process of its own, with its CUDA context made; kbenv judges under `hardened` in a judge that runs
already: with nothing built, the same source again, with changed device code, and at quick effort. Seconds from the
call to its return, both; two seconds before each kbenv has nothing to do, as while a model answers. Beside it: how
much the speedup varies over repeated verdicts, its reference latency against Triton's do_bench (the L2 cache flushed
before each call, as rotating slots leave it), and what `env.step` adds.

What is measured is kept (`--runs`, JSON Lines) and not measured again; the table is written anew by each run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks import upstream
from benchmarks.report import judge, machine, number
from kbenv import Evaluator, Verdict, load_problem
from kbenv.env import SingleTurnEnv
from kbenv.problems import Problem

EXTENSION, TYPES, TRITON, PYTHON = "torch/extension.h", "torch/types.h", "Triton", "Python"
FORMS = (EXTENSION, TYPES, TRITON, PYTHON)
LEVEL1_19 = "kernelbench/level1/19"
DRAW: tuple[tuple[str, str], ...] = (
    (LEVEL1_19, EXTENSION), (LEVEL1_19, PYTHON),
    ("kernelbench/level1/35", TYPES), ("kernelbench/level2/1", TRITON), ("kernelbench/level3/31", PYTHON),
    ("kernelbench/level1/75", EXTENSION), ("kernelbench/level2/88", PYTHON), ("kernelbench/level1/99", TRITON),
    ("kernelbench/level1/11", TYPES), ("kernelbench/level2/5", EXTENSION), ("kernelbench/level1/64", PYTHON),
    ("kernelbench/level3/38", TYPES), ("kernelbench/level2/19", TRITON),
)  # fmt: skip
"""L1/19, and 5, 4 and 2 problems of levels 1 to 3 by random.Random(6).sample from what `hardened` does not exclude."""
SPREAD = (LEVEL1_19, "kernelbench/level1/35", "kernelbench/level1/99")
REPEATS = 10
UPSTREAM_S, BENCH_S = 400.0, 120.0
SMALL, STEPS = "kernelbench/level1/12", 5
"""Of those that `hardened` judges, the one with the shortest call: 0.05 ms on an H200, 0.1 GB."""
REST_S = 2.0
WAYS = ("cold", "again", "changed", "quick")
_KERNEL = {
    EXTENSION: "#include <torch/extension.h>\n",
    TYPES: "",  # load_inline itself includes torch/types.h in CUDA sources
}
_CUDA = r'''
from torch.utils.cpp_extension import load_inline

_SOURCE = r"""HEADER#include <c10/cuda/CUDAStream.h>

// PROBLEM
__global__ void pass_on(const float *x, float *y, long n) {
    const long step = (long)gridDim.x * BLOCK;
    for (long i = blockIdx.x * (long)BLOCK + threadIdx.x; i < n; i += step) y[i] = x[i];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const long n = x.numel();
    const int blocks = (int)std::min<long>((n + BLOCK - 1) / BLOCK, 1 << 16);
    pass_on<<<blocks, BLOCK, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
_pass_on = load_inline("pass_on", "torch::Tensor forward(torch::Tensor x);", _SOURCE, functions=["forward"]).forward
'''
_TRITON = r"""
import triton
import triton.language as tl


@triton.jit
def _kernel(x, y, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask), mask)


def _pass_on(x):
    y = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK)
    return y
"""
_PYTHON = "\ndef _pass_on(x):\n    return x\n"
_BENCH = r"""
import sys, torch, triton
module = {}
exec(compile(open(sys.argv[1]).read(), "problem", "exec"), module)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
with torch.no_grad():
    model = module["Model"](*module["get_init_inputs"]()).cuda()
    with torch.device("cuda"):
        inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in module["get_inputs"]()]
    print(triton.testing.do_bench(lambda: model(*inputs), return_mode="median"))
"""

Record = dict[str, Any]


def submission(problem: Problem, form: str, *, changed: bool = False) -> str:
    """The reference, its output through a kernel of ours; `changed`: with other device code."""
    reference = re.sub(r"\bModel\b", "Reference", problem.source_for("cuda"))
    code = {TRITON: _TRITON, PYTHON: _PYTHON}.get(form, _CUDA.replace("HEADER", _KERNEL.get(form, "")))
    code = code.replace("BLOCK", "512" if changed else "1024").replace("PROBLEM", problem.id)
    return (
        f"{reference}\n\n{code}\n\nclass ModelNew(Reference):\n    def forward(self, *inputs):\n"
        "        return _pass_on(super().forward(*inputs).contiguous())\n"
    )


class Measurements:
    """What was measured, in a file; what is in it is not measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: dict[str, Record] = {record["what"]: record for record in map(json.loads, lines)}

    def take(self, what: str, measure: Callable[[], Record]) -> None:
        record = {"what": what} | measure()
        self.records[what] = record
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record)[:300], file=sys.stderr, flush=True)


def measurements(
    draw: Sequence[tuple[str, str]], evaluators: dict[str, Evaluator], checkout: Path | None, repeats: int
) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Everything there is to measure, by name, the most telling first."""
    names, device = list(dict.fromkeys(name for name, _ in draw)), evaluators["full"].device
    small = load_problem(SMALL)
    yield "smallest", partial(kbenv_on, small, PYTHON, evaluators, ("again", "quick"))
    for name, form in draw:
        problem = load_problem(name)
        yield f"kbenv {name} {form}", partial(kbenv_on, problem, form, evaluators, WAYS)
        if checkout is not None:
            yield f"upstream {name} {form}", partial(upstream_on, problem, form, checkout, device)
    yield "step", partial(step_on, small, evaluators["full"])
    for name in names:
        if device != "cpu":
            yield f"do_bench {name}", partial(bench, load_problem(name), device)
    for name in [name for name in SPREAD if name in names] or names[:1]:
        yield f"spread {name}", partial(spread, load_problem(name), evaluators["full"], repeats)


def kbenv_on(problem: Problem, form: str, evaluators: dict[str, Evaluator], ways: Sequence[str]) -> Record:
    """Seconds and status by way of judging; where nothing is compiled, changing it is judging something else."""
    record: Record = {}
    for way in ways:
        if way == "changed" and form == PYTHON:
            continue
        source = submission(problem, form, changed=way == "changed")
        time.sleep(REST_S)
        verdict, note, seconds = judge(evaluators["quick" if way == "quick" else "full"], problem, source)
        record[way] = seconds
        record[f"{way} status"] = note if verdict is None else verdict.status.value
        if verdict is not None:
            record[f"{way} phases"] = verdict.seconds
            if verdict.speedup is not None:
                record[f"{way} speedup"] = [verdict.speedup.low, verdict.speedup.value, verdict.speedup.high]
                record["reference ms"] = verdict.reference_latency_ms
    return record


def upstream_on(problem: Problem, form: str, checkout: Path, device: str) -> Record:
    with _seeing_only(device):
        result = upstream.ask(problem.source_for("cuda"), submission(problem, form), checkout, UPSTREAM_S)
    if isinstance(result, str):
        return {"seconds": None, "status": result}
    return {"seconds": result["seconds"], "status": "correct" if result["correct"] else f"refused: {result['why']}"}


@contextlib.contextmanager
def _seeing_only(device: str) -> Iterator[None]:
    """What is started meanwhile finds that GPU, and it is the first."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(index) for index in range(torch.cuda.device_count())]
    if device.startswith("cuda:"):
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[int(device.removeprefix("cuda:"))]
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update({} if given is None else {"CUDA_VISIBLE_DEVICES": given})


def bench(problem: Problem, device: str) -> Record:
    """Median milliseconds of the reference by Triton's do_bench."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(problem.source_for("cuda"))
        file.flush()
        try:
            with _seeing_only(device):
                done = subprocess.run(
                    [sys.executable, "-c", _BENCH, file.name],
                    capture_output=True, text=True, timeout=BENCH_S, check=False,
                )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"ms": None, "why": "no answer in time"}
    return {"ms": float(done.stdout)} if done.returncode == 0 else {"ms": None, "why": done.stderr[-200:]}


def spread(problem: Problem, evaluator: Evaluator, repeats: int) -> Record:
    """Speedups, with their intervals, of verdicts on one source."""
    found = [judge(evaluator, problem, submission(problem, PYTHON))[0] for _ in range(repeats)]
    passed: list[Verdict] = [verdict for verdict in found if verdict is not None and verdict.speedup is not None]
    return {
        "verdicts": len(found),
        "speedups": [[v.speedup.low, v.speedup.value, v.speedup.high] for v in passed if v.speedup],
        "reference ms": statistics.median(v.reference_latency_ms or math.nan for v in passed) if passed else None,
    }


def step_on(problem: Problem, evaluator: Evaluator) -> Record:
    """Seconds of `env.step` beyond the phases of the judge, and beyond the evaluator's call."""
    answer = f"```python\n{submission(problem, PYTHON)}```"
    beyond = []
    with SingleTurnEnv(problem=problem, evaluator=evaluator) as env:
        for _ in range(STEPS):
            env.reset()
            started = time.perf_counter()
            info = env.step(answer)[-1]
            beyond.append(time.perf_counter() - started - sum(info["verdict"].seconds.values()))
    return {"beyond_s": beyond}


# -- the table --------------------------------------------------------------------------------------------------------


def render(records: dict[str, Record], draw: Sequence[tuple[str, str]]) -> str:
    header = ["problem", "form", "upstream s", *(f"{way} s" for way in WAYS), "upstream/cold", "upstream/again",
              "upstream/changed", "statuses"]  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    rows = [(name, form, *_times(records, name, form)) for name, form in draw]
    for name, form, theirs, ours in rows:
        lines.append(_line(name, form, theirs, ours, _statuses(records, name, form)))
    for title, forms in (("all CUDA", (EXTENSION, TYPES)), ("all Triton", (TRITON,)), ("all Python", (PYTHON,))):
        counted = [(theirs, ours) for _, form, theirs, ours in rows if form in forms and theirs and ours.get("cold")]
        if counted:
            sums = {way: sum(ours.get(way) or 0.0 for _, ours in counted) or None for way in WAYS}
            lines.append(_line(f"**{title}** ({len(counted)})", "", sum(theirs for theirs, _ in counted), sums, ""))
    return "\n".join([*lines, "", *_notes(records, draw)])


def _times(records: dict[str, Record], name: str, form: str) -> tuple[float | None, Record]:
    theirs: float | None = records.get(f"upstream {name} {form}", {}).get("seconds")
    return theirs, records.get(f"kbenv {name} {form}", {})


def _line(name: str, form: str, theirs: float | None, ours: Record, statuses: str) -> str:
    cells = [name, form, number(theirs, 3), *(number(ours.get(way), 3) for way in WAYS)]
    for way in WAYS[:3]:
        own = ours.get(way)
        cells.append(f"{theirs / own:.1f}" if theirs and own else "")
    return "| " + " | ".join([*cells, statuses.replace("|", "/").replace("\n", " ")]) + " |"


def _statuses(records: dict[str, Record], name: str, form: str) -> str:
    ours = records.get(f"kbenv {name} {form}", {})
    found = [ours[f"{way} status"] for way in WAYS if f"{way} status" in ours]
    theirs = records.get(f"upstream {name} {form}", {}).get("status", "")
    return "; ".join(dict.fromkeys([*found, theirs]))[:200].strip("; ")


def _notes(records: dict[str, Record], draw: Sequence[tuple[str, str]]) -> Iterator[str]:
    smallest = records.get("smallest")
    if smallest:
        yield (
            f"- Smallest ({SMALL}), warm: {number(smallest.get('again'), 3)} s; quick "
            f"{number(smallest.get('quick'), 3)} s. Phases: {_phases(smallest, 'again')}; quick: "
            f"{_phases(smallest, 'quick')}."
        )
    if "step" in records:
        yield f"- `env.step` beyond the judge's phases: median {statistics.median(records['step']['beyond_s']):.3g} s."
    for name in dict.fromkeys(name for name, _ in draw):
        spread_of = records.get(f"spread {name}", {}).get("speedups")
        if spread_of:
            values = [value for _, value, _ in spread_of]
            middle = statistics.median(values)
            inside = sum(low <= middle <= high for low, _, high in spread_of)
            yield (
                f"- {name}, {len(values)} verdicts: speedup max/min {max(values) / min(values):.4f}; the median of all "
                f"lies in {inside} intervals; reference {number(records[f'spread {name}']['reference ms'])} ms."
            )
    for name, form in draw:
        theirs = records.get(f"do_bench {name}", {}).get("ms")
        ours = records.get(f"kbenv {name} {form}", {}).get("reference ms")
        if theirs and ours:
            yield f"- {name}: reference {ours:.4g} ms, do_bench {theirs:.4g} ms ({ours / theirs:.3f})."


def _phases(record: Record, way: str) -> str:
    return ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in record.get(f"{way} phases", {}).items())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", type=Path, help="a checkout of ScalingIntelligence/KernelBench to compare with")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="begin no measurement after so long")
    parser.add_argument("--runs", type=Path, default=Path("benchmarks/results/side-by-side.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/side-by-side.md"))
    parser.add_argument("--device", default="auto", help="as of `kbenv eval`")
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="measure what is so named: 'upstream *', 'spread *'"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS, help="verdicts on one source for the spread")
    parser.add_argument(
        "--problem", action="append", metavar="ID", help="these, as plain Python, instead of the draw: to try it out"
    )
    options = parser.parse_args(argv)
    draw = [(name, PYTHON) for name in options.problem] if options.problem else list(DRAW)
    measured, started, left = Measurements(options.runs), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # nothing is built yet
        rules = {"protocol": "hardened", "require_custom_kernel": False, "device": options.device}
        with Evaluator(**rules) as full, Evaluator(**rules, effort="quick") as quick:
            evaluators = {"full": full, "quick": quick}
            warm = False
            for what, measure in measurements(draw, evaluators, options.upstream, options.repeats):
                if what in measured.records or not fnmatch.fnmatch(what, options.only):
                    continue
                if time.monotonic() - started > options.budget_s:
                    left += 1
                    continue
                if not warm:  # judges that run already, with the device's rates measured
                    small = load_problem(SMALL)
                    warm = all(judge(one, small, submission(small, PYTHON))[2] for one in evaluators.values())
                measured.take(what, measure)
    command = "python benchmarks/side_by_side.py " + shlex.join(sys.argv[1:] if argv is None else argv)
    place = machine() if options.device != "cpu" else "CPU"
    text = f"# side-by-side\n\n{datetime.date.today()}; {place}\n\n`{command}`\n\n{render(measured.records, draw)}\n"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)
    if left:
        print(f"{left} measurements are left: run again", file=sys.stderr)


if __name__ == "__main__":
    main()
