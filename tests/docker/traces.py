"""What a sandbox leaves in this process, on this machine and with the engine: counted before and after.

Containers, processes and locks are told from those of others that use the machine and the engine meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbenv.sandbox import docker as docker_module
from kbenv.sandbox.engine import LABEL

if TYPE_CHECKING:
    from docker import DockerClient


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Waits for a condition; an AssertionError names it when it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.01)


def containers_of(client: DockerClient, owner: str | None = None) -> list[str]:
    """Ids of the containers, running or not, of the process that `owner` names; of this one when None."""
    wanted = f"{LABEL}={owner or docker_module.owner_label()}"
    found = client.containers.list(all=True, sparse=True, filters={"label": wanted})
    return [str(container.id) for container in found]


def created_since(client: DockerClient, moment: float, owner: str | None = None) -> list[str]:
    """Ids of all containers of that process since `moment` (of `time.time`), in order, removed ones too."""
    label = f"{LABEL}={owner or docker_module.owner_label()}"
    filters = {"type": "container", "event": "create", "label": label}
    events = client.events(since=f"{moment:.6f}", until=f"{time.time():.6f}", filters=filters, decode=True)
    return [event["id"] for event in events]


def processes_of(containers: list[str]) -> list[str]:
    """Processes on this machine in one of the containers, or that serve one (its shim)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cgroup").read_text() + (folder / "cmdline").read_text().replace("\0", " ")
            if any(container in words for container in containers):
                found.append(f"{folder.name} {words.splitlines()[-1][:200]}")
    return found


def children() -> list[str]:
    """Pids of this process's children."""
    return [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def descriptors() -> dict[str, str]:
    """What this process has open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def locks_are_free() -> bool:
    """Whether nobody holds one of this user's devices; looks below TMPDIR."""
    for path in (Path(tempfile.gettempdir()) / f"kbenv-locks-{os.getuid()}").glob("*"):
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def temporary_files() -> set[str]:
    """All below TMPDIR but the lock files, which stay."""
    folder = Path(tempfile.gettempdir())
    return {str(path) for path in folder.rglob("*") if not path.relative_to(folder).parts[0].startswith("kbenv-locks-")}


@contextlib.contextmanager
def nothing_left(client: DockerClient) -> Iterator[None]:
    """Fails where what runs inside leaves a container, a process, a thread, a descriptor, a file or a held lock."""
    began = time.time()
    containers = set(containers_of(client))
    client.close()  # its idle connections are not to be counted
    before = children(), threading.enumerate(), descriptors(), temporary_files()
    yield
    until(lambda: set(containers_of(client)) <= containers, "no container is left")
    created = created_since(client, began)
    until(lambda: not processes_of(created), "no process of a container is left")
    client.close()
    until(lambda: set(threading.enumerate()) <= set(before[1]), "no thread is left")
    left = {
        "children": set(children()) - set(before[0]),
        "descriptors": {name: target for name, target in descriptors().items() if before[2].get(name) != target},
        "files": temporary_files() - before[3],
    }
    assert not any(left.values()), left
    assert locks_are_free()
