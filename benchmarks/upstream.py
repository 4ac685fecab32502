"""Which of our attacks KernelBench's own evaluator credits: benchmarks/results/upstream.md.

    python benchmarks/upstream.py CHECKOUT        # a checkout of ScalingIntelligence/KernelBench; needs a GPU

Every attack on clock, memory, mathematics and provenance under tests/exploits/cuda goes to upstream's
`eval_kernel_against_ref` (5 correctness and 100 timing trials, as its scripts set them), each in a process of its own
and, as root, under the user nobody. Attacks on process and host (i1 to i15) are left out: there is no sandbox here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import machine
from kbenv.corpus import Case, load_cases
from kbenv.problems import load_problem

LIMIT_S = 240
NOBODY = 65534
_UNUSED = ("dotenv", "tqdm", "openai", "litellm", "requests")
"""What upstream's modules import and its evaluation has no use for."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="files whose name begins with this")
    parser.add_argument("--limit", type=int, help="judge so many files")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        return evaluate(options.checkout, **json.load(sys.stdin))
    cases = [case for case in load_cases("exploits/cuda") if not case.name.startswith("i")]
    cases = [case for case in cases if case.name.startswith(tuple(options.only or [""]))][: options.limit]
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "upstream.md", "w") as file:
        command = "python benchmarks/upstream.py CHECKOUT"
        file.write(
            f"# upstream\n\n{datetime.date.today()}; {machine()}; {version(options.checkout)}\n\n`{command}`\n\n"
        )
        for row in table(cases, options.checkout):  # written as it comes: an interrupted run keeps what it has
            line = "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in row) + " |"
            print(line, flush=True)
            file.write(line + "\n")
            file.flush()


def version(checkout: Path) -> str:
    if not (checkout / ".git").exists():
        return f"KernelBench of {checkout.name}, which is no clone"
    command = ["git", "-C", str(checkout), "log", "-1", "--format=KernelBench %h of %cs"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found or "KernelBench"


def table(cases: Sequence[Case], checkout: Path) -> Iterator[list[str]]:
    yield ["attack", "problem", "upstream", "speedup", "what it is"]
    yield ["---"] * 5
    for case in cases:
        outcome, speedup = judge(case, checkout)
        idea = case.source.strip('"').split("\n")[0]
        yield [case.name, case.constants["PROBLEM"], outcome, "" if speedup is None else f"{speedup:.3g}", idea]


def judge(case: Case, checkout: Path) -> tuple[str, float | None]:
    """What upstream says of one attack, and the speedup that it credits."""
    result = ask(load_problem(case.problem).source_for("cuda"), case.source, checkout, LIMIT_S)
    if isinstance(result, str):
        return result, None
    if not result["correct"]:
        return f"refused: {result['why'][:100]}", None
    return "CREDITED" + (", flagged" if result["flagged"] else ""), result["speedup"]


def ask(problem: str, submission: str, checkout: Path, limit_s: float) -> dict[str, Any] | str:
    """What upstream's evaluator says, in a new process with nothing built: see `evaluate`; or why it says nothing."""
    given = {"problem": problem, "submission": submission, "triton": "import triton" in submission}
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        environment = os.environ | {
            "HOME": scratch, "TMPDIR": scratch, "TORCH_EXTENSIONS_DIR": scratch, "TRITON_CACHE_DIR": scratch,
            "USER": "nobody",
        }  # fmt: skip
        command = [sys.executable, __file__, str(checkout.resolve()), "--child"]
        try:
            done = subprocess.run(
                command, input=json.dumps(given), capture_output=True, text=True, timeout=limit_s, check=False,
                cwd=scratch, env=environment, user=NOBODY if os.geteuid() == 0 else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "no answer in time"
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return f"died ({done.returncode}): {done.stderr.strip()[-120:]}"
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def evaluate(checkout: Path, problem: str, submission: str, triton: bool) -> None:
    """In a process of its own: prints what upstream's evaluator returns, and the seconds that it took."""
    for name in _UNUSED:
        module = types.ModuleType(name)
        module.__getattr__ = lambda _: mock.MagicMock()  # type: ignore[method-assign]
        sys.modules[name] = module
    sys.path.insert(0, str(checkout / "src"))
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    torch.zeros(1, device="cuda")  # an evaluator that is already running has its context
    started = time.perf_counter()
    result = eval_kernel_against_ref(
        problem, submission, num_correct_trials=5, num_perf_trials=100, measure_performance=True,
        device=torch.device("cuda:0"), backend="triton" if triton else "cuda",
    )  # fmt: skip
    seconds = time.perf_counter() - started
    correct = bool(result is not None and result.compiled and result.correctness)
    speedup = result.ref_runtime / result.runtime if correct and result.runtime > 0 else None
    metadata = dict(result.metadata) if result is not None else {}
    why = "; ".join(f"{key}: {value}" for key, value in metadata.items() if key not in ("hardware", "device"))
    flagged = bool(metadata.get("excessive_speedup"))
    found = {"correct": correct, "speedup": speedup, "why": why[:500], "flagged": flagged, "seconds": seconds}
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
