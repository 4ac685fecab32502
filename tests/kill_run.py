"""A run that is killed: `kbenv run` with scripted judge and model in a process of its own. See test_kill.py.

Usage: python -m tests.kill_run OUT PAUSE_S AGENT...; every answer and every verdict takes PAUSE_S. The model answers by
what it reads alone, so that the run is the same however often it is interrupted.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from kbenv.agents import ANSWER, Completion, Message
from kbenv.cli import main, run
from kbenv.cli.agents import OpenedModel
from kbenv.problems.problem import Problem
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_verdict
from tests.models import make_answer

STATUSES = (Status.WRONG_VALUE, Status.COMPILE_ERROR, Status.PASSED, Status.PASSED)


def digest(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:6], 16)


class SlowModel:
    name = "slow"

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        time.sleep(self.pause_s)
        number = digest(f"{sample} {purpose} {messages}")
        text = make_answer(number) if purpose == ANSWER else f"Notes {number}."
        os.write(2, f"ASKED {number}\n".encode())
        return Completion(text, prompt_tokens=7, completion_tokens=number % 100, cost_usd=0.001, finish_reason="stop")


class SlowEvaluator(ScriptedEvaluator):
    pause_s = 0.0

    def evaluate(self, problem: Problem | str, source: str, *, seeds: Any = None) -> Verdict:
        time.sleep(self.pause_s)
        number = digest(source)
        status = STATUSES[number % len(STATUSES)]
        os.write(2, f"JUDGED {number}\n".encode())
        return make_verdict(status, **({"speedup": 1 + number % 50 / 10} if status is Status.PASSED else {}))


def start(out: str, pause_s: float, agents: list[str]) -> int:
    import kbenv.evaluator

    def make_evaluator(**_: Any) -> SlowEvaluator:
        return SlowEvaluator()

    def open_model(_: Any, name: str, problems: Sequence[Problem], __: Any) -> OpenedModel:
        return OpenedModel(name, problems, lambda problem: SlowModel(pause_s))

    SlowEvaluator.pause_s = pause_s
    kbenv.evaluator.Evaluator = make_evaluator  # type: ignore[assignment, misc]
    run.open_model = open_model
    words = "run --model slow --calls 8"
    if set(agents) - {"single-shot", "skills"}:  # which take none
        words += " --context summary --context-answers 1"
    words += " --problems core/level1/matmul,core/level1/layer_norm,core/level1/relu,core/level1/softmax"
    words += " --parallel 2 --max-calls 1000"
    return main([*words.split(), "--out", out, *(part for agent in agents for part in ("--agent", agent))])


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
