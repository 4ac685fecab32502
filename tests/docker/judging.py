"""A process that judges, for tests that end it: `python -m tests.docker.judging SANDBOX COUNT`.

It prints the label of its containers, then its pid and each phase of COUNT honest submissions, and "verdict STATUS".
"""

from __future__ import annotations

import os
import sys

from kbenv.evaluator import Evaluator
from kbenv.sandbox.docker import owner_label
from tests.docker.rules import HONEST, RELU, quick_protocol


def say(words: str) -> None:
    print(os.getpid(), words, flush=True)


def main(sandbox: str, count: str) -> None:
    print(owner_label(), flush=True)
    with Evaluator(protocol=quick_protocol(), device="cpu", sandbox=sandbox, on_phase=say) as evaluator:
        for _ in range(int(count)):
            say(f"verdict {evaluator.evaluate(RELU, HONEST).status.value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
