"""What a sandbox takes and gives: a `Job` in, a result (JSON) out, over any carrier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from kbenv.errors import DeviceMemoryError, ReferenceFaultError, SandboxError
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol as Rules

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One submission to one problem. `device` is "cpu" or "cuda"; `threads` are a runner's on the CPU."""

    problem: Problem
    source: str
    protocol: Rules
    device: str
    threads: int

    def to_message(self) -> dict[str, Any]:
        return {
            "problem": {
                "id": self.problem.id,
                "source": self.problem.source_for(self.device),
                "dropped": dict(self.problem.dropped),
            },
            "source": self.source,
            "protocol": self.protocol.model_dump(mode="json"),
            "device": self.device,
            "threads": self.threads,
        }


class Sandbox(Protocol):
    """Holds untrusted code on one device; a context manager that starts its judge when first used."""

    name: str

    def run(self, job: Job, on_phase: Callable[[str], None]) -> Result:
        """Judges one submission.

        Raises:
            ReferenceFaultError: the problem's reference failed.
            DeviceMemoryError: the device cannot hold the job; the message says need and have.
            SandboxError: the judge could not be started, died, or failed.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def fault_error(fault: dict[str, Any]) -> SandboxError:
    """The exception of a judge's fault; a traceback comes as its note."""
    kinds = {"reference": ReferenceFaultError, "memory": DeviceMemoryError}
    error = kinds.get(fault["kind"], SandboxError)(fault["message"])
    if fault["detail"]:
        error.add_note(fault["detail"])
    return error
