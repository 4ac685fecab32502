"""What /proc tells of processes and their threads; of those that are gone, and where it is not readable, nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def pids_of(uid: int | None, trusted: set[str]) -> list[int]:
    """Of all processes but those that are known."""
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name not in trusted:
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid or _real_uid(name) == uid:
                    pids.append(int(name))
    return pids


def _real_uid(pid: str) -> int | None:
    """From /proc/PID/status: the folder itself belongs to root while the process is not dumpable."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


def uids(task: str) -> set[int]:
    """Real, effective, saved and file system's, of a thread; empty when it is gone."""
    with contextlib.suppress(OSError), open(f"{task}/status") as file:
        return {int(uid) for line in file if line.startswith("Uid:") for uid in line.split()[1:]}
    return set()


def tasks(pids: set[int]) -> Iterator[str]:
    """The /proc folders of all threads."""
    for pid in pids:
        with contextlib.suppress(OSError):
            yield from [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]


def runs(task: str) -> bool:
    """Whether a thread is neither stopped nor gone."""
    with contextlib.suppress(OSError), open(f"{task}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "TtZX"
    return False


def left_processor(task: str) -> bool:
    """Waits, as the kernel does for who asks what system call a thread is in, until a stopped thread has left its
    processor; False where that cannot be asked."""
    with contextlib.suppress(OSError), open(f"{task}/syscall") as file:
        return file.read() != "running\n"
    return False


def open_files(pid: int) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.stat(f"/proc/{pid}/fd/{name}")


def shared_bytes(pid: int) -> int:
    """Of memory that a process maps writable and shared: pinned and managed memory of a device are of this kind, and
    need not count as resident."""
    total = 0
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/maps") as file:
        for line in file:
            span, permissions = line.split(maxsplit=2)[:2]
            if permissions[1] == "w" and permissions[3] == "s":
                start, end = span.split("-")
                total += int(end, 16) - int(start, 16)
    return total


def private_bytes(pid: int) -> int:
    """Resident, anonymous memory of a process, which may be pinned where it lies."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:"))
    return 0


def processor_ns(pids: set[int]) -> int:
    """Processor time of all threads so far; 0 where the kernel does not count it."""
    total = 0
    for task in tasks(pids):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def arrivals(pids: set[int]) -> dict[str, int]:
    """How often each thread has come onto a processor; 0 where the kernel does not count it."""
    found = {}
    for task in tasks(pids):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"{task}/schedstat") as file:
            found[task] = int(file.read().split()[2])
    return found


def descendants(pid: int) -> list[int]:
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{current}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{current}/task/{task}/children") as file:
                    queue += [int(child) for child in file.read().split()]
    return found
