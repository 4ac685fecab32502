"""The exceptions of kbenv: each belongs to one boundary and derives from a stdlib class.

A submission's fault is never an exception: it is a `Status` in a `Verdict`. What is raised here is the caller's fault
(`UsageError` and its subclasses: nothing ran) or ours (`SandboxError`: no verdict could be had, hence no reward).
"""


class UsageError(ValueError):
    """What was asked for cannot be done as asked; nothing ran. The command line exits with 2."""


class ProblemNotFoundError(UsageError):
    """No problem of that name, or its file cannot be read as a KernelBench-format problem."""


class ProblemExcludedError(UsageError):
    """The protocol does not judge this problem (for example because its output is constant)."""


class ProblemUnjudgedError(UsageError):
    """The judge would get this problem wrong: it asks for something that is not judged yet."""


class TrainingForbiddenError(UsageError):
    """The licence of the problem's set restricts training on it, and training was asked for."""


class SandboxError(RuntimeError):
    """The judge could not establish a verdict: a fault of the machine, of kbenv, or of the problem's reference.

    The command line exits with 3; environments raise it rather than return a reward.
    """


class ReferenceFaultError(SandboxError):
    """The problem's own reference failed where it must not: it raises, runs out of memory, or mutates its inputs."""


class DeviceMemoryError(SandboxError):
    """The device cannot hold the job even with one slot and chunked comparison; the message says need and have."""


class IsolationError(SandboxError):
    """Nothing but limits and a filter would keep submissions apart here, and the protocol asks for more."""


class ModelError(RuntimeError):
    """The language model's service failed for good (after retries), or its budget is spent."""
