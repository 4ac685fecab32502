"""Whether a runner that owes an answer computes at all: who sleeps is not waited for as long as who compiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .proc import processor_ns

_LIMIT_S = 30.0
"""So long a runner may wait for something else than a processor: for another's lock, or a disk."""
_SHARE = 0.01
"""Of one processor, at least, for a runner that computes."""


class Idleness:
    """Of a runner's processes, from `restart` on; never where the kernel does not count their time."""

    def __init__(self, pids: Callable[[], Iterable[int]], limit_s: float = _LIMIT_S) -> None:
        self._pids = pids
        self.limit_s = limit_s
        self.restart()

    def restart(self) -> None:
        self._since, self._spent_ns = time.monotonic(), self._spent()
        self._counts = self._spent_ns > 0

    def lasts(self) -> bool:
        """Whether it has lasted `limit_s`. Time of children that are gone is missing: a change either way is work."""
        now, spent_ns = time.monotonic(), self._spent()
        if abs(spent_ns - self._spent_ns) > _SHARE * self.limit_s * 1e9:
            self._since, self._spent_ns = now, spent_ns
        return self._counts and now - self._since >= self.limit_s

    def _spent(self) -> int:
        return processor_ns(set(self._pids()))
