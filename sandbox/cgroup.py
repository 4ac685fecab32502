"""The memory of the container that this process is in, as its cgroup (version 1 or 2) counts it from inside."""

from __future__ import annotations

import contextlib

_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
_KERNEL = "/sys/fs/cgroup/memory/memory.kmem.usage_in_bytes"
_CACHE = ("active_file", "inactive_file", "total_active_file", "total_inactive_file")
"""Pages of files that can be read again; what lies in a tmpfs or a memfd is not among them."""


class Memory:
    """Of this container; nothing is in use where it has no limit."""

    def __init__(self) -> None:
        self._limit: int | None = None
        for limit, usage, stat in _FILES:
            with contextlib.suppress(OSError, ValueError):  # "max" is no number
                self._usage, self._stat = usage, stat
                self._limit = int(_read(limit))
                break

    def shared_bytes(self) -> int:
        """What lies in memory files and in tmpfs, of all processes; 0 where nothing is limited."""
        if self._limit is None:
            return 0
        counts = dict(line.split() for line in _read(self._stat).splitlines())
        return int(counts.get("total_shmem", counts.get("shmem", 0)))

    def share(self) -> float:
        """In use, as a share of the limit."""
        if self._limit is None:
            return 0.0
        counts = dict(line.split() for line in _read(self._stat).splitlines())
        total = any(name.startswith("total_") for name in counts)
        cache = sum(int(counts.get(name, 0)) for name in _CACHE if name.startswith("total_") == total)
        return (int(_read(self._usage)) - cache) / self._limit

    def kernel_share(self) -> float:
        """What the kernel itself holds (names and files that it remembers, above all), as a share of the limit."""
        if self._limit is None:
            return 0.0
        counts = dict(line.split() for line in _read(self._stat).splitlines())
        held = int(counts.get("kernel", counts.get("slab", 0)))  # version 2, "kernel" since Linux 5.18
        with contextlib.suppress(OSError):
            held = int(_read(_KERNEL))
        return held / self._limit

    def exceeds(self, share: float) -> bool:
        """As `share() > share`, without a look at the details when the answer is plain."""
        return self._limit is not None and int(_read(self._usage)) > share * self._limit and self.share() > share


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
