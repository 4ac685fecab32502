"""What PyTorch itself takes for a problem: eager without and with TF32, and compiled, each in a process of its own.

See `variant` for how one is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..wire import Message
from ..zygote import Zygote
from .audit import fixed_seeds
from .faults import InfrastructureFault
from .job import Job
from .plan import DoesNotFitError
from .variant import measure_variant

_OFF = {"matmul": False, "conv": False, "rnn": False}
_ON = {"matmul": True, "conv": True, "rnn": True}
_FLAGS = {"eager-fp32": _OFF, "eager-tf32": _ON, "compiled": _ON}


class Baseline(Job):
    """The baselines of `spec`'s problem; runs once. `spec["variants"]` names those that are wanted."""

    def __init__(
        self, spec: Message, zygote: Zygote, uids: Sequence[int] | None, report: Callable[[str], None]
    ) -> None:
        super().__init__(spec, zygote, uids, report)
        self.seeds = fixed_seeds(self.protocol)
        self.has_variants = True
        self._variants: list[str] = spec["variants"]

    def run(self) -> Message:
        """The variants for the host; that one of them fails is in the result.

        Raises:
            InfrastructureFault: there is no baseline: no memory, or a fault of the reference or of ours.
        """
        variants: Message = {}
        with self._stack:
            try:
                self._phase("reference", self.start_reference)
                for name in self._variants:
                    self._phase(name, partial(self._measure, name, variants))
            except DoesNotFitError as e:
                raise InfrastructureFault("memory", str(e)) from e
        return {"variants": variants, "flags": self.flags, "seconds": self.seconds}

    def _measure(self, name: str, variants: Message) -> None:
        variants[name] = measure_variant(self, flags=_FLAGS[name], compiled=name == "compiled")
