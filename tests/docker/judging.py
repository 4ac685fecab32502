"""A process that judges, for tests that end it: `python -m tests.docker.judging [COUNT]`.

It prints the label of its containers, then a line for each phase of COUNT honest submissions, and "verdict STATUS".
"""

from __future__ import annotations

import sys

from kbenv.evaluator import Evaluator
from kbenv.sandbox.docker import owner_label
from tests.docker.rules import HONEST, RELU, quick_protocol


def main() -> None:
    print(owner_label(), flush=True)
    with Evaluator(
        protocol=quick_protocol(), device="cpu", sandbox="docker", on_phase=lambda name: print(name, flush=True)
    ) as evaluator:
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
            print("verdict", evaluator.evaluate(RELU, HONEST).status.value, flush=True)


if __name__ == "__main__":
    main()
