"""Where the fixed costs of a verdict lie: seconds of each message to each runner, and of starting and ending them.

    python benchmarks/messages.py --device cuda --effort quick          # as root
    python benchmarks/messages.py --device cpu --problem core/level1/softmax --repeats 3

Judges the reference as its own submission under `hardened` in this process, where the judge's steps can be timed, a few
times over, and prints the last verdict's phases and every step's total, count and longest. The problem is run here:
give it only what you trust.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from kbenv import get_protocol, load_problem
from kbenv.protocol import EFFORTS
from kbenv.sandbox.job import Job as Spec
from kbenv.sandbox.judge import checks
from kbenv.sandbox.judge import job as jobs
from kbenv.sandbox.judge.arm import Arm
from kbenv.sandbox.judge.clock import Clock
from kbenv.sandbox.judge.job import Job
from kbenv.sandbox.judge.place import Place
from kbenv.sandbox.judge.setting import Setting
from kbenv.sandbox.judge.slots import Slots
from kbenv.sandbox.judge.timing import Timer
from kbenv.sandbox.judge.truth import Truth
from kbenv.sandbox.zygote import Zygote

UIDS = range(64950, 64956)
"""Of no other judge's jobs."""
LINES = 40

Spent = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="core/level1/relu")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--effort", choices=EFFORTS, default="full")
    parser.add_argument("--repeats", type=int, default=2, help="the first one is not warm")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("a runner needs a user of its own: run as root")
    problem = load_problem(options.problem)
    source = re.sub(r"\bModel\b", "ModelNew", problem.source_for(options.device))
    protocol = get_protocol("hardened", require_custom_kernel=False).with_effort(options.effort)
    spec = Spec(problem, source, protocol, options.device, 1 if options.device == "cpu" else None).to_message()
    spent: Spent = defaultdict(list)
    watch(spent)
    torch.set_num_threads(1)  # as in a judge
    if options.device == "cuda":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # by which the fork server knows that there is a GPU
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o711)
        with Zygote.start(root, contained=False) as zygote:
            for _ in range(options.repeats):
                place = Place(zygote, Setting.of(spec), UIDS)
                job = Job(spec, place, lambda _: None)
                place.spares.complete([*job.at_start, *job.further_roles])  # as a judge that had nothing to do
                place.spares.rest()
                spent.clear()
                started = time.perf_counter()
                result = job.run()
                wall_s = time.perf_counter() - started
                del job, place
                gc.collect()
                if options.device == "cuda":
                    torch.cuda.empty_cache()
    print(result["status"], result["message"], *result["flags"], sep="\n")
    print(f"\n{wall_s:.3f} s; phases: " + ", ".join(f"{name} {s:.3f}" for name, s in result["seconds"].items()))
    print(f"\n{'step':40} {'s':>8} {'times':>6} {'longest':>8}")
    for name, seconds in sorted(spent.items(), key=lambda item: -sum(item[1]))[:LINES]:
        print(f"{name:40} {sum(seconds):8.3f} {len(seconds):6} {max(seconds):8.4f}")


def watch(spent: Spent) -> None:
    """From now on the steps below are timed; those that run within another are in its time, too."""
    _time(spent, Arm, "ask", lambda arm, op, *_: f"ask {arm.role} {op}")
    _time(spent, Clock, "turn", lambda _, arm, *__: f"turn {arm.role}")
    for name in ("rest", "begin", "stop", "_await_start"):
        _time(spent, Arm, name, lambda arm, *_, name=name: f"{name.strip('_')} {arm.role}")
    for cls, name in (
        (Arm, "pause"), (Arm, "settle"), (Arm, "expect_still"), (Arm, "check_host_memory"), (Slots, "_create"),
        (Slots, "close"), (Slots, "poison"), (Job, "recreate_pair"), (Job, "prepare"), (Timer, "warm_up"),
        (Timer, "round"), (Timer, "single_calls"), (Truth, "judge"), (Truth, "judge_timed"), (Truth, "calibrate"),
        (checks, "apply_probe"), (checks, "count_nonfinite"), (jobs, "same_bytes"), (jobs, "perturb"),
        (Zygote, "new_scratch"), (Zygote, "wipe_scratch"),
    ):  # fmt: skip
        label = f"{cls.__name__.rpartition('.')[2]}.{name.strip('_')}"
        _time(spent, cls, name, lambda *_, label=label: label)


def _time(spent: Spent, cls: Any, name: str, label: Callable[..., str]) -> None:
    step = getattr(cls, name)

    def timed(self: Any, *arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return step(self, *arguments, **options)
        finally:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            spent[label(self, *arguments)].append(time.perf_counter() - started)

    setattr(cls, name, timed)


if __name__ == "__main__":
    main()
