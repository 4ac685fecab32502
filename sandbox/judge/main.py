"""The judge process: takes jobs from the host as frames on standard input, one at a time, and answers with frames.

It never imports a submission and never unpickles what a runner sent. For a job it sends any number of {"phase": name}
and then {"result": ..., "healthy": bool} or {"fault": {"kind", "message", "detail"}}, and likewise for {"audit": job}
and {"baseline": job} (its problem alone), {"build": job} (see `ahead`) and {"describe": {"device"}} (a result with
hardware and software, and on a GPU with "stand_in"); to {"ping": True} it answers {"pong": True}. Standard input is a
socket for both ways, or a pipe (in a container), and then standard output answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import os
import platform
import re
import secrets
import select
import shutil
import socket
import stat
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

_UID_FIRST, _UID_SETS = 60100, 900
"""Uids of jobs: below 65536, which is all that a user-namespaced container maps, and in no range of useradd's."""
_CONTAINER_UID_FIRST, _CONTAINER_UID_SETS = 10000, 9000
"""In a container each job has uids of its own, from a random place: the kernel counts processes per uid, and another
container's must not count here."""
_IDLE_S = 0.2
"""Without a job for so long a judge has further runners of the next one made."""
_AHEAD_NICE = 10
"""Of a judge that builds ahead, and of all below it: one that measures goes first."""
_BUILDS_BYTES, _CONTAINER_BUILDS_BYTES = 8 << 30, 3 << 29
"""Of what compilers made, on disk and in a container's memory."""


def main(arguments: list[str]) -> None:
    """The judge's process.

    `arguments`: a private folder; "contained" where a container of ours holds judge and runners; "builds=PATH" for a
    folder of what compilers made that outlives this judge; "ahead" for one that judges nothing and builds for others.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch must not start threads before the zygote is forked
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    host, bridges = _connection()
    root, contained = arguments[0], "contained" in arguments[1:]
    os.umask(0o022)
    if "ahead" in arguments[1:]:
        os.nice(_AHEAD_NICE)

    import torch  # noqa: F401  the zygote's children find it imported

    from ..wire import Channel
    from ..zygote import Zygote

    with Zygote.start(root, contained=contained) as zygote, _uids(contained=contained) as uids:
        for bridge in bridges:  # threads only after the zygote has been forked
            bridge.start()
        threading.Thread(target=_exit_with_host, args=(host.fileno(), root), daemon=True).start()
        _serve(Channel(host), zygote, uids, _open_artifacts(arguments, contained=contained))


def _connection() -> tuple[socket.socket, list[threading.Thread]]:
    """The host's socket; where standard input and output are pipes, one of a pair and the threads that bridge."""
    given, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # whatever prints, the frames stay clean
    if stat.S_ISSOCK(os.fstat(given).st_mode):
        os.close(answers)
        return socket.socket(fileno=given), []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def take_in() -> None:
        while data := os.read(given, 1 << 16):
            theirs.sendall(data)
        theirs.shutdown(socket.SHUT_RDWR)  # the host is gone

    def give_out() -> None:
        while data := theirs.recv(1 << 16):
            view = memoryview(data)
            while view:
                view = view[os.write(answers, view) :]

    return ours, [threading.Thread(target=target, daemon=True) for target in (take_in, give_out)]


def _exit_with_host(descriptor: int, root: str) -> None:
    """A killed host leaves no judge behind, whatever job is running; zygote and runners die with the judge."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    shutil.rmtree(root, ignore_errors=True)
    os._exit(1)


def _open_artifacts(arguments: list[str], *, contained: bool):  # type: ignore[no-untyped-def]
    """The folder of what compilers made; None without root, where builders could have no user of their own."""
    from .artifacts import Artifacts

    if os.geteuid() != 0:
        return None
    given = [argument.removeprefix("builds=") for argument in arguments[1:] if argument.startswith("builds=")]
    most = _CONTAINER_BUILDS_BYTES if contained else _BUILDS_BYTES
    if "ahead" not in arguments[1:]:  # what is built ahead is for others
        given.append(os.path.join(arguments[0], "builds"))
    for folder in given:
        with contextlib.suppress(OSError):
            return Artifacts(folder, most)
    return None


def _serve(channel, zygote, uids, artifacts) -> None:  # type: ignore[no-untyped-def]
    from ..runner.stand_in import describe_device
    from ..wire import ClosedError, DeadlineError
    from .ahead import build_ahead
    from .audit import Audit
    from .baseline import Baseline
    from .faults import InfrastructureFault
    from .job import Job
    from .place import Ahead, Place
    from .setting import Setting

    def run(kind: str, spec: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The result, and whether the device still works."""
        if kind == "describe":
            return ({} if spec["device"] == "cpu" else {"stand_in": describe_device()}), True
        if kind == "build":
            return build_ahead(spec, zygote, next(uids), artifacts)
        setting = Setting.of(spec)
        with ahead.take(setting) or Place(zygote, setting, next(uids)) as place:
            job = {"audit": Audit, "baseline": Baseline}.get(kind, Job)(
                spec, place, lambda phase: channel.send({"phase": phase}), *([artifacts] if kind == "job" else [])
            )
            result = job.run()
        healthy = place.left is None and (result.get("status") == "PASSED" or _device_works(spec["device"]))
        if kind == "job" and healthy:
            ahead.expect(setting, job.at_start, job.further_roles)
        return result, healthy

    channel.send({"ready": True, "software": _software()})
    gc.freeze()  # collecting after a job looks at that job alone: what was imported takes 100 ms to look through
    with Ahead(lambda setting: Place(zygote, setting, next(uids))) as ahead:
        while True:
            try:
                spec = channel.receive(_IDLE_S if ahead.has_more else None)
            except DeadlineError:
                ahead.go_on()
                continue
            except ClosedError:
                return
            if "ping" in spec:
                channel.send({"pong": True})
                continue
            kind = next((name for name in ("audit", "baseline", "build", "describe") if name in spec), "job")
            spec = spec.get(kind, spec)
            try:
                hardware = _hardware("cpu" if kind == "build" else spec["device"])
                result, healthy = run(kind, spec)
                answer = {"result": result | {"hardware": hardware, "software": _software()}, "healthy": healthy}
            except InfrastructureFault as fault:
                answer = {"fault": {"kind": fault.kind, "message": str(fault), "detail": fault.detail}}
            except Exception as e:  # the host must hear of any fault of the judge's, and it is never a verdict
                message = f"the judge failed: {type(e).__name__}: {e}"
                answer = {"fault": {"kind": "sandbox", "message": message, "detail": traceback.format_exc()}}
            channel.send(answer)
            _release()
            ahead.go_on()


def _release() -> None:
    """Gives back what a job held, which is in cycles: the next one needs the room, in this judge or in another."""
    gc.collect()
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _device_works(device: str) -> bool:
    """Whether the judge's own context still computes: some faults of a submission stay on the device."""
    torch = sys.modules["torch"]
    try:
        return bool(torch.ones(1024, device=device).sum().item() == 1024)
    except RuntimeError:
        return False


def _software() -> dict[str, str | None]:
    torch = sys.modules["torch"]
    return {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}


def _hardware(device: str) -> dict[str, object]:
    """The machine that the judge runs on, which need not be the host's."""
    from .faults import InfrastructureFault

    torch = sys.modules["torch"]
    machine = {"cpu": _cpu_name(), "cpu_count": len(os.sched_getaffinity(0)), "driver": None}
    if device == "cpu":
        return machine | {
            "device": "cpu", "name": platform.machine(), "multiprocessors": None, "l2_bytes": None,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        }  # fmt: skip
    if not torch.cuda.is_available():
        raise InfrastructureFault("sandbox", f"torch {torch.__version__} of the sandbox finds no GPU")
    properties = torch.cuda.get_device_properties(0)
    return machine | {
        "device": "cuda", "name": properties.name, "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count, "l2_bytes": properties.L2_cache_size,
        "driver": _driver(),
    }  # fmt: skip


@functools.cache
def _cpu_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


@functools.cache
def _driver() -> str | None:
    with contextlib.suppress(OSError), open("/proc/driver/nvidia/version") as file:
        if match := re.search(r"Module\s+(?:for \S+\s+)?([\d.]+)", file.read()):
            return match[1]
    return None


@contextlib.contextmanager
def _uids(*, contained: bool) -> Iterator[Iterator[Sequence[int] | None]]:
    """Uids for job after job, that no other judge on this machine uses now; None each without root."""
    if os.geteuid() != 0:
        yield iter(lambda: None, ())
    elif contained:
        yield _container_uids()
    else:
        with _claimed_uids() as claimed:
            yield iter(lambda: claimed, ())


def _container_uids() -> Iterator[Sequence[int]]:
    from .place import UIDS

    index = secrets.randbelow(_CONTAINER_UID_SETS)
    while True:
        first = _CONTAINER_UID_FIRST + index * UIDS
        yield range(first, first + UIDS)
        index = (index + 1) % _CONTAINER_UID_SETS


@contextlib.contextmanager
def _claimed_uids() -> Iterator[Sequence[int]]:
    from .place import UIDS

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
        first = _UID_FIRST + index * UIDS
        try:
            yield range(first, first + UIDS)
        finally:
            os.close(lock)
        return
    raise RuntimeError(f"all {_UID_SETS} sets of user ids are in use by other judges")
