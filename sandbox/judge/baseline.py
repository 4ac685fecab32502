"""What PyTorch itself takes for a problem: eager under settings of TF32, and compiled. See `variant` for how."""

from __future__ import annotations

from collections.abc import Callable

from ..wire import Message
from .audit import fixed_seeds
from .faults import InfrastructureFault
from .job import Job
from .place import NULL, REFERENCE, Place
from .plan import DoesNotFitError
from .variant import measure_compilation, measure_eager

_OFF = {"matmul": False, "conv": False, "rnn": False}
_ON = {"matmul": True, "conv": True, "rnn": True}
_DEFAULT = {"matmul": False, "conv": True, "rnn": True}
_EAGER = {"eager-fp32": _OFF, "eager-default": _DEFAULT, "eager-tf32": _ON}
_COMPILED = "compiled"


class Baseline(Job):
    """The baselines of `spec`'s problem; runs once. `spec["variants"]` names those that are wanted."""

    at_start = (REFERENCE, NULL)

    def __init__(self, spec: Message, place: Place, report: Callable[[str], None]) -> None:
        super().__init__(spec, place, report)
        self.seeds = fixed_seeds(self.protocol)
        self._variants: list[str] = spec["variants"]

    def run(self) -> Message:
        """The variants for the host; that one of them fails is in the result.

        Raises:
            InfrastructureFault: there is no baseline: no memory, or a fault of the reference or of ours.
        """
        variants: Message = {}
        with self._place, self._stack:
            try:
                self._phase("reference", self.start_reference)
                eager = {name: flags for name, flags in _EAGER.items() if name in self._variants}
                if eager:
                    self._phase("eager", lambda: variants.update(measure_eager(self, eager)))
                if _COMPILED in self._variants:
                    self._phase(_COMPILED, lambda: variants.update({_COMPILED: measure_compilation(self, _ON)}))
            except DoesNotFitError as e:
                raise InfrastructureFault("memory", str(e)) from e
        return {"variants": variants, "flags": self.flags, "seconds": self.seconds}
