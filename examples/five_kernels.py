"""Judges five recorded answers to one problem on two judges of the CPU, and prints the numbers of the whole (a minute).

On a machine with GPUs: `python examples/five_kernels.py cuda:0 cuda:1`.
"""

import sys
from pathlib import Path

import kbenv
from kbenv.extraction import extract_code
from kbenv.metrics import Solved, read_sample, summarise

PROBLEM = "core/level1/relu"
FOLDER = Path(__file__).parent / "replay" / PROBLEM
ANSWERS = ["identity", "typo", "operators", "c_scalar", "c_parallel"]


def main() -> None:
    sources = [extract_code((FOLDER / f"{name}.md").read_text(encoding="utf-8")) for name in ANSWERS]
    jobs = [(PROBLEM, source) for source in sources]
    samples = []
    for outcome in kbenv.evaluate_many(jobs, devices=sys.argv[1:] or ["cpu", "cpu"]):
        if outcome.verdict is None:
            print(f"{ANSWERS[outcome.index]}: no verdict: {outcome.fault}")
            continue
        samples.append(read_sample(outcome.verdict))
        speedup = outcome.verdict.speedup if outcome.verdict.credited else None
        print(f"{ANSWERS[outcome.index]}: {outcome.verdict.status}" + (f" {speedup.value:.2f}x" if speedup else ""))
    summary = summarise([Solved(PROBLEM, tuple(samples))])
    print(f"pass@1 {summary.pass_at['1'].value:.2f}, fast_1@1 {summary.fast_at['1'].value:.2f}", end="")
    print(f", best {summary.speedup.value:.2f}x" if summary.speedup else "")


if __name__ == "__main__":
    main()
