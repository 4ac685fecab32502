"""Whose fault it is: a submission's becomes a status, everything else an infrastructure fault."""

from __future__ import annotations

import signal

from .arm import ArmError

_STATUS = {
    "load": "LOAD_ERROR", "compile": "COMPILE_ERROR", "memory": "OUT_OF_MEMORY", "access": "ILLEGAL_ACCESS",
    "runtime": "RUNTIME_ERROR", "shape": "WRONG_SHAPE", "dtype": "WRONG_DTYPE", "timeout": "TIMEOUT",
    "malformed": "TAMPERED",
}  # fmt: skip
_ACCESS_SIGNALS = (signal.SIGSEGV, signal.SIGBUS)


class SubmissionFault(Exception):
    """The submission is not credited: status, stage, and what is known."""

    def __init__(self, status: str, stage: str, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.stage = stage
        self.message = message
        self.detail = detail


class InfrastructureFault(Exception):
    """No verdict can be had.

    kind: "reference", "memory", "isolation" or "sandbox"; detail: a traceback, for those who look.
    """

    def __init__(self, kind: str, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.detail = detail


def submission_fault(error: ArmError, stage: str) -> SubmissionFault:
    """What a failure of the submission's runner means at a stage."""
    if error.kind == "died":
        if error.signal in _ACCESS_SIGNALS:
            status = "ILLEGAL_ACCESS"
        elif error.signal == signal.SIGKILL:
            status = "OUT_OF_MEMORY"  # nothing of ours sends it unasked: the kernel's out-of-memory killer does
        else:
            status = "LOAD_ERROR" if stage == "load" else "RUNTIME_ERROR"
    elif error.kind == "runtime" and stage == "load":
        status = "LOAD_ERROR"
    else:
        status = _STATUS[error.kind]
    return SubmissionFault(status, stage, error.message, error.detail)
