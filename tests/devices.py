"""Scripted devices for pools: evaluators that answer by a function, each in its pool's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import cast

from kbenv.errors import ProblemExcludedError, SandboxError
from kbenv.evaluator import Evaluator
from kbenv.pool import EvaluatorPool
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol, get_protocol
from kbenv.verdict import Hardware, Status, SubmissionFacts, Verdict
from tests.fakes import make_problem, make_verdict

Answer = Callable[["Device", str], Verdict]


class Worker:
    """A build worker that builds by a function; `abort` ends what it waits for."""

    def __init__(self, build: Callable[[Worker, str], None]) -> None:
        self.built: list[str] = []
        self.told: list[object] = []
        self.aborted = threading.Event()
        self.closed = False
        self._build = build

    def build(self, problem: Problem, source: str, stand_in: object) -> float:
        self.built.append(source)
        self.told.append(stand_in)
        self._build(self, source)
        return 1.5

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.closed = True


class Device:
    """An evaluator that answers by a function, in its pool's thread; `abort` ends what it waits for."""

    sandbox_note: str | None = None
    backend = "auto"

    def __init__(
        self, name: str, answer: Answer, *, gpu: str = "GPU of the test", protocol: Protocol | None = None,
        workers: Sequence[Worker] = (),
    ):  # fmt: skip
        self.device = name
        self.protocol = protocol or get_protocol()
        self.gpu = gpu
        self.workers = list(workers)
        self.judged: list[str] = []
        self.aborted = threading.Event()
        self.closed = False
        self._answer = answer

    def admit(self, problem: Problem | str) -> Problem:
        problem = make_problem(id=problem) if isinstance(problem, str) else problem
        if problem.id in self.protocol.excluded:
            raise ProblemExcludedError(f"{problem.id} is excluded")
        return problem

    def evaluate(self, problem: Problem, source: str) -> Verdict:
        self.judged.append(source)
        return self._answer(self, source)

    def format_error(self, problem: Problem, message: str) -> Verdict:
        return make_verdict(Status.FORMAT_ERROR, message=message)

    def machine(self) -> tuple[Hardware, dict[str, str | None]]:
        verdict = right(self, "")
        assert verdict.hardware is not None
        return verdict.hardware, dict(verdict.software)

    def describe_device(self) -> dict[str, str]:
        return {"name": self.gpu}

    def build_workers(self, count: int) -> list[Worker]:
        return self.workers[:count]

    def wait(self) -> None:
        """What a long job does: until it is told to stop."""
        if self.aborted.wait(20):
            raise SandboxError("the sandbox was told to stop")

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.closed = True


def right(device: Device, source: str) -> Verdict:
    hardware = Hardware(
        device=device.device, name=device.gpu, memory_bytes=1, driver="580.1", multiprocessors=1, l2_bytes=1, cpu="",
        cpu_count=1,
    )  # fmt: skip
    facts = SubmissionFacts(sha256=source, source_bytes=len(source), backend="python")
    return make_verdict(hardware=hardware, submission=facts)


def broken(device: Device, source: str) -> Verdict:
    raise SandboxError(f"{device.device} fell off the bus")


def pool_of(*devices: Device) -> EvaluatorPool:
    """A pool of scripted devices."""
    return EvaluatorPool(cast("list[Evaluator]", list(devices)))
