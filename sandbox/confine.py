"""How a forked process becomes a runner: namespaces, another user, limits, no new privileges, the deny list.

Everything is tried and what was had is returned; a control that fails is reported and never silently assumed. Outside
this module: cgroup limits (the Docker sandbox has them), and bubblewrap's command line (`zygote`, without root).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from . import seccomp

_libc = ctypes.CDLL(None, use_errno=True)
NAMESPACES = {"mount": 0x00020000, "ipc": 0x08000000, "uts": 0x04000000, "network": 0x40000000, "pid": 0x20000000}
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = 0x8000, 1, 442
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 2, 3, 4, 36
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")
"""Where every user may write."""
_PATHS_A_COMMAND = 256
_FEW = 256
"""Entries of a folder that is removed without a child."""
_WARDEN = 65533
"""A uid of no job and nobody."""
_DIE_S = 30.0
PRIVATE_FOLDERS = (*SHARED_FOLDERS, "/home", "/root")
HEADER_FOLDERS = ("THUNDERKITTENS_ROOT",)
"""Variables that name a folder of headers which submissions include: handed on, and the folder stays readable."""


@dataclass
class Isolation:
    """What one runner got."""

    uid: int | None = None
    namespaces: list[str] = field(default_factory=list)
    seccomp: bool = False
    missing: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "uid": self.uid, "namespaces": self.namespaces, "seccomp": self.seccomp, "missing": self.missing,
        }  # fmt: skip


def isolation_level(had: Mapping[str, Any]) -> Literal["full", "namespace", "uid", "same-uid"]:
    """How far `Isolation.to_json` keeps a submission from the user that judges it (`kbenv.verdict.Isolation`)."""
    apart = {"pid", "network", "mount"} <= set(had["namespaces"])
    if had["uid"] is not None:
        return "full" if apart else "uid"
    return "namespace" if apart else "same-uid"


_WAITING_AT_ONCE = 16
"""Runners of one job that may wait under one uid, each with as many threads as there are processors."""


@dataclass(frozen=True)
class Rules:
    """What a runner may use; sizes in bytes.

    Attributes:
        waiting_uid: the real and the saved uid until `begin`; None: `uid` from the start.
        processes: and threads, under the runner's uid.
        address_space: None where CUDA reserves hundreds of gigabytes.
        oom_score: how soon the kernel's out-of-memory killer takes it, up to 1000.
    """

    uid: int | None
    waiting_uid: int | None
    scratch: str
    processes: int
    open_files: int
    file_bytes: int
    address_space: int | None
    oom_score: int


def become_subreaper() -> None:
    """Orphaned descendants become this process's children, so that it can wait for them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def unshare(name: str) -> bool:
    """Leaves one namespace; False when the kernel or the lack of privilege refuses."""
    return bool(_libc.unshare(NAMESPACES[name]) == 0)


def raise_loopback() -> None:
    """In a network namespace of one's own: 127.0.0.1 is there, with nobody on it but the namespace's own processes.

    NVIDIA's tools talk to the program that they watch over it. Does nothing where the kernel refuses.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def mount_scratch(path: str, uid: int, size: int) -> None:
    """A private tmpfs of at most `size` bytes for one uid."""
    options = f"size={size},nr_inodes=65536,mode=0700,uid={uid},gid={uid}"
    mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def unmount(path: str) -> None:
    """Detaches a mount, used or not."""
    if _libc.umount2(path.encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), f"umount {path}")


def private_mounts() -> bool:
    """Enters a mount namespace whose changes stay inside."""
    if not unshare("mount"):
        return False
    try:
        mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    except OSError:
        return False
    return True


def needed_paths(extra: Iterable[str]) -> list[str]:
    """Folders that a runner must be able to read, wherever they lie: interpreter, packages, tools, libraries."""
    named = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CPATH", *HEADER_FOLDERS)
    environment = [os.environ.get(name, "") for name in named]
    found = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), *sys.path, *extra]
    found += [folder for value in environment for folder in value.split(":")]
    real = {os.path.realpath(folder) for folder in found if folder and os.path.isdir(folder)}
    real |= {os.path.abspath(folder) for folder in found if folder and os.path.isdir(folder)}
    return sorted(real)


def hide(folders: Iterable[str], keep: Iterable[str]) -> None:
    """Covers `folders` with empty tmpfs, save for what of `keep` lies beneath them. In a private mount namespace."""
    for folder in folders:
        if not os.path.isdir(folder) or os.path.islink(folder) or any(_within(folder, kept) for kept in keep):
            continue
        inside = [kept for kept in keep if _within(kept, folder)]
        inside = [kept for kept in inside if not any(kept != other and _within(kept, other) for other in inside)]
        handles = [(kept, os.open(kept, os.O_PATH | os.O_DIRECTORY)) for kept in inside]
        mode = "1777" if folder in SHARED_FOLDERS else "0755"
        mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size=1g,nr_inodes=65536,mode={mode}")
        for kept, handle in handles:
            os.makedirs(kept, exist_ok=True)
            mount(f"/proc/self/fd/{handle}", kept, None, _MS_BIND | _MS_REC)
            os.close(handle)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def make_read_only(path: str, *, read_only: bool = True) -> None:
    """Makes every mount at and below `path` read-only, or writable again."""
    attributes = (ctypes.c_uint64 * 4)(*((_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    result = _libc.syscall(_SYS_MOUNT_SETATTR, -100, path.encode(), _AT_RECURSIVE, ctypes.byref(attributes), 32)
    if result != 0:
        raise OSError(ctypes.get_errno(), f"mount_setattr {path}")


def mount_proc() -> None:
    """A /proc of the new pid namespace: it shows no process outside."""
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def restrict(rules: Rules, isolation: Isolation) -> None:
    """The last steps in the process that will run the code: session, user, limits, no new privileges, deny list."""
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()  # within one, anybody may continue (SIGCONT) anybody
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(rules.oom_score))  # as another user this process may not any more
    if rules.uid is not None:
        _become(rules.uid, waiting=rules.waiting_uid)
        isolation.uid = rules.uid
        # Counted per real uid, so only where that is the job's alone; all that wait have the same one.
        at_once = 1 if rules.waiting_uid is None else _WAITING_AT_ONCE
        _limit(resource.RLIMIT_NPROC, at_once * rules.processes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, rules.file_bytes)
    _limit(resource.RLIMIT_NOFILE, rules.open_files)
    if rules.address_space is not None:
        _limit(resource.RLIMIT_AS, rules.address_space)
    isolation.seccomp = seccomp.install(deny_network="network" not in isolation.namespaces)
    if not isolation.seccomp:
        isolation.missing.append("seccomp: the kernel takes no filter, or this machine's system calls are unknown")


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)  # never raise one: root may lack CAP_SYS_RESOURCE
    resource.setrlimit(kind, (value, value))


def _become(uid: int, groups: Sequence[int] = (), *, waiting: int | None = None) -> None:
    """With `waiting`, a uid of nobody's code, `uid` can neither signal nor trace this process until `begin`.

    The effective uid, which files and a CUDA context belong to, is the same before and after that.
    """
    os.setgroups(groups)
    os.setresgid(uid, uid, uid)
    real = uid if waiting is None else waiting
    os.setresuid(real, uid, real)


def begin(processes: int | None) -> None:
    """In a runner that waited: its uid is its own from now on, and the other one is gone for good.

    `processes`: as in `Rules`; None where they are not limited.
    """
    uid = os.geteuid()
    os.setresuid(uid, uid, uid)
    if processes is not None:
        _limit(resource.RLIMIT_NPROC, processes)


def _in_child(step: Callable[[], None]) -> int:
    """Runs `step` in a child; its exit status, 0 when nothing was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            step()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_all_of(uid: int) -> None:
    """Kills every process of `uid`, and returns when none is left. Raises OSError when one does not die.

    The kernel kills all that a child with that effective uid may signal, in one step that no fork escapes. The child
    itself cannot be signalled by them: its real and its saved uid are nobody else's.
    """

    def kill() -> None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(_WARDEN, uid, _WARDEN)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but itself

    deadline = time.monotonic() + _DIE_S
    while _in_child(kill) != 0 or any(not is_zombie for is_zombie in _processes_of(uid)):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"processes of uid {uid} did not die within {_DIE_S:.0f} s of SIGKILL")
        time.sleep(0.002)


def _processes_of(uid: int) -> Iterator[bool]:
    """For each process of `uid` whether it is a zombie, which waits for nothing but its parent."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/status") as file:
                facts = dict(line.split(":", 1) for line in file if line.startswith(("State:", "Uid:")))
                if int(facts["Uid"].split()[0]) == uid:
                    yield facts["State"].split()[0] in "ZX"


def make_folder_as(uid: int, path: str, groups: Sequence[int] = ()) -> None:
    """Makes a folder that only `uid` may enter, where it or one of the groups may write. Raises OSError."""
    with _acting_as(uid, groups):
        os.mkdir(path, mode=0o700)


@contextlib.contextmanager
def _acting_as(uid: int, groups: Sequence[int]) -> Iterator[None]:
    """What this process does to files it does as `uid`, without a child: a fork takes 10 ms where torch is imported.

    `uid` can neither signal nor trace this process meanwhile, since its real and its saved uid stay root's.
    """
    death_signal = ctypes.c_int()
    _libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    dumpable = _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
        _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)  # a change of user undoes both
        _libc.prctl(_PR_SET_DUMPABLE, dumpable, 0, 0, 0)


def wipe_as(uid: int, folders: Iterable[str], groups: Sequence[int] = ()) -> None:
    """Removes what `uid` owns directly below `folders`, and its System V objects, as that user.

    Root without DAC_OVERRIDE can neither list a 0700 folder of another uid nor remove it. `uid` must be a job's own,
    never a person's, and none of its processes may be left. Raises OSError when something could not be removed.

    Args:
        groups: what the user needs to be in to write to `folders`.
    """
    entries = [entry for folder in folders for entry in _owned_by(uid, folder)]
    with _acting_as(uid, groups):
        for entry in entries:
            _remove_few(entry)
    entries = [entry for entry in entries if os.path.lexists(entry.path)]
    paths = [entry.path for entry in entries]
    objects = _sysv_objects(uid)
    if not paths and not objects:
        return
    # chmod follows a link that it is given by name, to wherever it leads: it gets real folders alone.
    real_folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def wipe() -> None:
        _become(uid, groups)
        _run_over(real_folders, "chmod", "-R", "u+rwx")
        _run_over(paths, "rm", "-rf")  # of any depth, which Python's rmtree is not
        for kind, number in objects:
            _remove_sysv(kind, number)

    if _in_child(wipe) != 0 or any(os.path.lexists(path) for path in paths):
        raise OSError(f"what uid {uid} left could not be removed: {', '.join(paths[:3])}")


def _remove_few(top: os.DirEntry[str]) -> None:
    """Removes a file, or a folder with few entries that lets itself be read; leaves the rest to `rm`."""
    folders, files = ([top.path], []) if top.is_dir(follow_symlinks=False) else ([], [top.path])
    with contextlib.suppress(OSError):
        for folder in folders:  # which grows
            with os.scandir(folder) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.path)
                    if len(folders) + len(files) > _FEW:
                        return
        for file in files:
            os.unlink(file)
        for folder in reversed(folders):
            os.rmdir(folder)


def _run_over(paths: Sequence[str], *command: str) -> None:
    for first in range(0, len(paths), _PATHS_A_COMMAND):
        subprocess.run(
            [*command, "--", *paths[first : first + _PATHS_A_COMMAND]],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def _owned_by(uid: int, folder: str) -> list[os.DirEntry[str]]:
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # somebody else's, gone meanwhile
                if entry.stat(follow_symlinks=False).st_uid == uid:
                    found.append(entry)
    return found


def _sysv_objects(uid: int) -> list[tuple[str, int]]:
    """Shared memory, semaphores and message queues that outlive their processes: kind and number."""
    found = []
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError), open(f"/proc/sysvipc/{kind}") as table:
            names = table.readline().split()
            for line in table:
                values = dict(zip(names, line.split(), strict=False))
                if int(values["uid"]) == uid:
                    found.append((kind, int(values[{"shm": "shmid", "sem": "semid", "msg": "msqid"}[kind]])))
    return found


def _remove_sysv(kind: str, number: int) -> None:
    arguments = (number, 0, 0) if kind == "sem" else (number, 0, None)  # IPC_RMID is 0
    if getattr(_libc, f"{kind}ctl")(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{kind}ctl({number}, IPC_RMID)")
