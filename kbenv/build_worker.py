"""A build worker: compiles what a submission will ask for before its job begins, on no device, beside the judges.

It costs a job nothing but the time saved: what cannot be built ahead is built in the job, and no verdict comes from it.
"""

from __future__ import annotations

import os

from kbenv.backends import BACKENDS
from kbenv.case import split
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol
from kbenv.sandbox.host import Sandbox
from kbenv.sandbox.job import Job, Result

MOST_FOR_EACH = 6
"""By default, for each device: a CUDA source takes several times as long to compile as a kernel to judge."""
_LEAST_BYTES = 4 << 30
"""Of memory for one process of a build worker's, however small the machine: compilers need it."""


class BuildWorker:
    """Builds for the evaluators of one protocol and kind of device, one source at a time.

    Args:
        sandbox: see `Sandbox.build_worker`.
        workers: how many there will be, which share half of the machine's memory.
    """

    def __init__(self, sandbox: Sandbox, protocol: Protocol, kind: str, workers: int) -> None:
        limits = protocol.limits
        share = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 * workers)  # a submission and a compiler
        memory = min(limits.host_memory_bytes, max(_LEAST_BYTES, share))
        self._protocol = protocol.model_copy(update={"limits": limits.model_copy(update={"host_memory_bytes": memory})})
        self._sandbox = sandbox
        self._kind = kind

    def build(self, problem: Problem, source: str, stand_in: Result | None) -> float:
        """The seconds that it took; nothing is said of what came of it.

        Args:
            stand_in: as `Evaluator.describe_device` returns it.

        Raises:
            SandboxError: the worker's judge could not be started, died, or failed.
        """
        if problem.case is None and len(problem.cases) > 1:
            judged, _ = split(problem, self._protocol.precision)
            if not judged:
                return 0.0
            problem = judged[0][1]
        job = Job(problem, problem.complete(source), self._protocol, self._kind, 1)
        seconds: float = self._sandbox.build(job, stand_in)["seconds"]
        return seconds

    def abort(self) -> None:
        """From another thread: the build that runs is lost at once, and none begins after it."""
        self._sandbox.abort()

    def close(self) -> None:
        """Ends the worker's judge."""
        self._sandbox.close()


def may_build(source: str, max_bytes: int) -> bool:
    """Whether the source's text speaks of anything to build ahead, and is one of at most `max_bytes` that is judged."""
    try:
        is_judged = len(source.encode()) <= max_bytes
    except UnicodeEncodeError:
        return False
    return is_judged and any(backend.may_build_ahead(source) for backend in BACKENDS)


def default_workers(kind: str, devices: int) -> int:
    """How many build workers devices of a kind get unless told otherwise: on the CPU they would take a judge's time."""
    return 0 if kind == "cpu" else min(MOST_FOR_EACH * devices, len(os.sched_getaffinity(0)) // 2)
