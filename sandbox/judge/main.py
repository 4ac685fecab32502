"""The judge process: takes jobs from the host as frames on standard input, one at a time, and answers on standard
output.

It never imports a submission and never unpickles what a runner sent. For a job it sends any number of {"phase": name}
and then {"result": ...} or {"fault": {"kind", "message", "detail"}}.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import select
import shutil
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator

_UID_FIRST, _UID_SETS, _ROLES = 60100, 1200, 3
"""Uids of jobs: below 65536, which is all that a user-namespaced container maps, and in no range of useradd's."""


def main(arguments: list[str]) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch must not start threads before the zygote is forked
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    descriptor = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # whatever prints, the frames stay clean
    root = arguments[0]
    os.umask(0o022)

    import torch  # noqa: F401  the zygote's children find it imported

    from ..wire import Channel
    from ..zygote import Zygote

    os.set_inheritable(descriptor, False)
    with Zygote.start(root) as zygote, _uids() as uids:  # forked before any thread starts
        threading.Thread(target=_exit_with_host, args=(descriptor, root), daemon=True).start()
        _serve(Channel(socket.socket(fileno=descriptor)), zygote, uids)


def _exit_with_host(descriptor: int, root: str) -> None:
    """A killed host leaves no judge behind, whatever job is running; zygote and runners die with the judge."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    shutil.rmtree(root, ignore_errors=True)
    os._exit(1)


def _serve(channel, zygote, uids) -> None:  # type: ignore[no-untyped-def]
    from ..wire import ClosedError
    from .faults import InfrastructureFault
    from .job import Job

    channel.send({"ready": True, "software": _software()})
    while True:
        try:
            spec = channel.receive()
        except ClosedError:
            return
        try:
            hardware = _hardware(spec["device"])
            job = Job(spec, zygote, uids, lambda phase: channel.send({"phase": phase}))
            answer = {"result": job.run() | {"hardware": hardware, "software": _software()}}
        except InfrastructureFault as fault:
            answer = {"fault": {"kind": fault.kind, "message": str(fault), "detail": fault.detail}}
        except Exception as e:  # the host must hear of any fault of the judge's, and it is never a verdict
            message = f"the judge failed: {type(e).__name__}: {e}"
            answer = {"fault": {"kind": "sandbox", "message": message, "detail": traceback.format_exc()}}
        channel.send(answer)


def _software() -> dict[str, str | None]:
    torch = sys.modules["torch"]
    return {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}


def _hardware(device: str) -> dict[str, object]:
    torch = sys.modules["torch"]
    if device == "cpu":
        return {
            "device": "cpu", "name": platform.machine(), "multiprocessors": None, "l2_bytes": None,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        }  # fmt: skip
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": "cuda", "name": properties.name, "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count, "l2_bytes": properties.L2_cache_size,
    }  # fmt: skip


@contextlib.contextmanager
def _uids() -> Iterator[tuple[int, ...] | None]:
    """Three uids that no other judge on this machine uses now, or None without root."""
    if os.geteuid() != 0:
        yield None
        return
    folder = os.path.join(tempfile.gettempdir(), "kbenv-uids")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != 0:
        raise PermissionError(f"{folder} belongs to another user; remove it")
    for index in range(_UID_SETS):
        lock = os.open(os.path.join(folder, str(index)), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        first = _UID_FIRST + index * _ROLES
        try:
            yield tuple(range(first, first + _ROLES))
        finally:
            os.close(lock)
        return
    raise RuntimeError(f"all {_UID_SETS} sets of user ids are in use by other judges")
