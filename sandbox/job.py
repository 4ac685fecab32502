"""What a sandbox takes and gives: a `Job` in, a result (JSON) out, over any carrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kbenv.errors import DeviceMemoryError, IsolationError, ReferenceFaultError, SandboxError
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One submission to one problem. `device` is "cpu" or "cuda"; `threads`: a runner's; None for all cores.

    `seeds`: those of a verdict, to judge with the same draws again.
    """

    problem: Problem
    source: str
    protocol: Protocol
    device: str
    threads: int | None
    seeds: Mapping[str, Any] | None = None

    def to_message(self) -> dict[str, Any]:
        return {
            "problem": {
                "id": self.problem.id,
                "source": self.problem.source_judged(self.device),
                "dropped": dict(self.problem.dropped),
                "comparator": asdict(self.problem.contract.comparator),
            },
            "source": self.source,
            "protocol": self.protocol.model_dump(mode="json"),
            "device": self.device,
            "threads": self.threads,
            "seeds": None if self.seeds is None else dict(self.seeds),
        }


def fault_error(fault: dict[str, Any]) -> SandboxError:
    """The exception of a judge's fault; a traceback comes as its note."""
    kinds = {"reference": ReferenceFaultError, "memory": DeviceMemoryError, "isolation": IsolationError}
    error = kinds.get(fault["kind"], SandboxError)(fault["message"])
    if fault["detail"]:
        error.add_note(fault["detail"])
    return error
