"""The fork server: one single-threaded process with torch imported, from which every runner is forked.

A new interpreter needs seconds to import torch; a fork needs a few hundredths. The zygote is forked from the judge
before the judge has a seed, a job or a CUDA context, and it keeps no descriptor but its own socket. It must never
import `torch.utils.cpp_extension` nor touch CUDA: either would poison CUDA in every child.

A runner in a pid namespace is that namespace's second process: its init only waits, and dies with all below it.
In a container of ours the namespaces are the container's, for all runners and the judge together; uids and the deny
list keep them apart. Without root a runner is a new interpreter in bubblewrap where that is installed (`namespace`),
else a plain fork (`same-uid`), and says so.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from . import cgroup, confine
from .wire import Channel, ClosedError, DeadlineError, Message, pair

_UNTRUSTED = ("submission", "builder")
"""Roles whose processes read what a submission says: their files count against its limits."""
_REAP_S = 30.0
_WATCH_S = 0.05
_MEMORY_SHARE = 0.875
"""Of a container's memory in use, at which a submission is ended."""
_KERNEL_SHARE = 0.1
"""Of a container's memory in the kernel's hands after a job, at which the next one gets a fresh container."""


class Zygote:
    """The judge's handle on the fork server; a context manager."""

    def __init__(self, channel: Channel, pid: int, *, contained: bool) -> None:
        self._channel = channel
        self._due: deque[Answer] = deque()
        """What was asked and is not answered yet, in order."""
        self.pid = pid
        self.contained = contained

    @classmethod
    def start(cls, root: str, *, contained: bool) -> Zygote:
        """Forks the server.

        Args:
            root: the judge's private folder; scratch folders are made below it, in root/scratch.
            contained: a container of ours gives the namespaces and limits, and forbids to make further ones.
        """
        ours, theirs = pair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                confine.die_with_parent()
                _close_all_but({0, 1, 2, theirs.fileno()})
                _Server(Channel(theirs), root, contained=contained).serve()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        theirs.close()
        return cls(Channel(ours), pid, contained=contained)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def new_scratch(self, role: str, uid: int | None, nbytes: int) -> str:
        """An empty scratch folder for a role in place of its last one; at most `nbytes` where a tmpfs can be had."""
        return str(self._ask({"op": "scratch", "role": role, "uid": uid, "bytes": nbytes})["path"])

    def wipe_scratch(self, role: str) -> None:
        """Removes a role's scratch folder and all else that its uid left; its processes must be gone.

        Raises OSError, or RuntimeError when something could not be removed.
        """
        self._ask({"op": "wipe", "role": role})

    def spawn(self, request: Message, sock: socket.socket, output: int) -> Answer:
        """Has a runner started with one end of a socket and a pipe for what it prints, while the caller goes on.

        The answer holds its pid, its isolation, and whether it is `alone` in a pid namespace, so that all that it
        starts, orphans too, are its descendants.
        """
        return self._send({"op": "spawn", **request}, (sock.fileno(), output))

    def watch(self, uid: int) -> None:
        """A submission runs as `uid` from now on, until its runner is reaped: see `_Server._watch_memory`."""
        self._ask({"op": "watch", "uid": uid})

    def reap(self, pid: int, uid: int | None, *, grace_s: float) -> tuple[int, bool]:
        """Waits `grace_s` for a runner to end by itself, kills what is left of its tree.

        Returns:
            Its exit status, negative the number of the signal that ended it, as in subprocess; and whether it had to be
            killed.
        """
        answer = self._ask({"op": "reap", "pid": pid, "uid": uid, "grace_s": grace_s})
        return int(answer["status"]), bool(answer["killed"])

    def _ask(self, request: Message) -> Message:
        return self._send(request).get()

    def _send(self, request: Message, descriptors: Sequence[int] = ()) -> Answer:
        self._channel.send(request, descriptors)
        answer = Answer(self._receive_one)
        self._due.append(answer)
        return answer

    def _receive_one(self) -> None:
        self._due[0].content = self._channel.receive(timeout_s=120.0)
        self._due.popleft()


class Answer:
    """Of the fork server, which answers in the order in which it was asked."""

    def __init__(self, receive_one: Callable[[], None]) -> None:
        self._receive_one = receive_one
        self.content: Message | None = None

    def get(self) -> Message:
        """Waits for it. Raises RuntimeError: the fork server could not do what it was asked for."""
        content = self._await()
        if "error" in content:
            raise RuntimeError(f"the fork server failed: {content['error']}")
        return content

    @property
    def failed(self) -> bool:
        return "error" in self._await()

    def _await(self) -> Message:
        while self.content is None:
            self._receive_one()
        return self.content


def _close_all_but(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


class _Server:
    def __init__(self, channel: Channel, root: str, *, contained: bool) -> None:
        self._channel = channel
        self._scratch_root = os.path.join(root, "scratch")
        self._trusted_root = os.path.join(self._scratch_root, "trusted")
        """Reference and null runner have their folders here: in a container a tmpfs that no submission can fill."""
        self._scratch: dict[str, tuple[str, int | None]] = {}
        """Role -> its folder and uid."""
        self._is_root = os.geteuid() == 0
        self._contained = contained
        self._private_mounts = False
        self._missing: list[str] = []
        self._waits: dict[int, tuple[int, bool]] = {}
        """Process to kill (the init of a pid namespace, or the runner) -> our child to wait for, and which it is."""
        self._suspect: int | None = None
        """Uid of the submission that runs, in a container."""
        self._memory = cgroup.Memory()

    def serve(self) -> None:
        from .runner import serve  # noqa: F401  runners find it imported

        if os.environ.get("CUDA_VISIBLE_DEVICES"):  # a GPU's judge
            with contextlib.suppress(Exception):  # half a second in every process that would need it
                importlib.import_module("triton")  # where that fails, it fails again in those
        gc.disable()
        gc.freeze()  # children do not copy the pages of what was imported
        os.makedirs(self._scratch_root, exist_ok=True)
        if self._is_root and not self._contained:
            self._private_mounts = self._set_up_mounts()
        if self._is_root and not self._private_mounts:
            os.chmod(self._scratch_root, 0o1733)  # each uid makes its own folder: root may lack CAP_CHOWN
        else:
            os.chmod(self._scratch_root, 0o711)
        os.makedirs(self._trusted_root, exist_ok=True)
        os.chmod(self._trusted_root, 0o1771)  # root's group makes folders here, and no runner is in it
        if not self._is_root:
            self._missing.append("another uid: needs root; runners share the judge's")
            if shutil.which("bwrap") is None:
                self._missing.append(
                    "namespaces: bubblewrap is not installed; nothing but the deny list keeps runners apart"
                )
        operations = {
            "scratch": self._new_scratch, "wipe": self._wipe_scratch, "spawn": self._spawn, "reap": self._reap,
            "watch": self._watch,
        }  # fmt: skip
        while True:
            try:
                timeout_s = None if self._suspect is None else _WATCH_S
                request, descriptors = self._channel.receive_with_descriptors(timeout_s)
            except DeadlineError:
                self._watch_memory()
                continue
            except ClosedError:
                return
            try:
                answer = operations[request["op"]](request, descriptors)
            except Exception as e:  # the judge must hear of it, whatever it is
                answer = {"error": f"{type(e).__name__}: {e}"}
            for descriptor in descriptors:
                os.close(descriptor)
            self._channel.send(answer)

    def _watch_memory(self) -> None:
        """Ends a submission before the container's memory does: the kernel's choice whom to kill can be influenced.

        A process may lower its own oom_score_adj again to what its container began with, and hold memory that is not in
        its resident size: the judge or the reference would be killed in its place. To the judge a runner that ends by
        SIGKILL is out of memory.
        """
        if self._suspect is not None and self._memory.exceeds(_MEMORY_SHARE):
            with contextlib.suppress(TimeoutError):  # the next look is soon
                confine.kill_all_of(self._suspect)

    def _set_up_mounts(self) -> bool:
        """Once, for all runners: other people's files hidden, the rest read-only."""
        if not confine.private_mounts():
            self._missing.append("mount namespace: not permitted here; the file system is shared, writable where it is")
            return False
        try:
            keep = confine.needed_paths([os.path.dirname(os.path.abspath(__file__)), self._scratch_root])
            confine.hide(confine.PRIVATE_FOLDERS, keep)
            confine.make_read_only("/")
            confine.mount("tmpfs", self._scratch_root, "tmpfs", 0, "size=1m,mode=0711")
            for folder in ("/tmp", "/var/tmp", "/dev/shm"):
                if os.path.ismount(folder):
                    confine.make_read_only(folder, read_only=False)
        except OSError as e:
            self._missing.append(f"read-only file system: {e}")
        return True

    # -- scratch ------------------------------------------------------------------------------------------------------

    def _new_scratch(self, request: Message, _: list[int]) -> Message:
        role, uid = request["role"], request["uid"]
        self._wipe_scratch(request, [])
        path = os.path.join(self._root_of(role), f"{role}-{secrets.token_hex(8)}")
        self._scratch[role] = (path, uid)
        if uid is None:
            os.mkdir(path, mode=0o700)
        elif self._private_mounts:
            os.mkdir(path, mode=0o700)
            confine.mount_scratch(path, uid, request["bytes"])
        else:
            confine.make_folder_as(uid, path, self._groups_of(role))
        return {"path": path}

    def _root_of(self, role: str) -> str:
        return self._scratch_root if role in _UNTRUSTED else self._trusted_root

    def _groups_of(self, role: str) -> list[int]:
        """What a child that has become a role's uid must be in to write to `_root_of`."""
        return [] if role in _UNTRUSTED else [0]

    def _wipe_scratch(self, request: Message, _: list[int]) -> Message:
        role = request["role"]
        path, uid = self._scratch.pop(role, (None, None))
        if path is None:
            return {}
        if uid is None:
            shutil.rmtree(path, ignore_errors=True)
            return {}
        if self._private_mounts:
            confine.unmount(path)
            os.rmdir(path)
        confine.wipe_as(uid, [self._root_of(role), *confine.SHARED_FOLDERS], self._groups_of(role))
        is_last = self._contained and not self._scratch
        if is_last and self._memory.kernel_share() > _KERNEL_SHARE:  # names that were looked for in vain, perhaps
            raise OSError(f"the kernel still holds {self._memory.kernel_share():.0%} of the container's memory")
        return {}

    # -- spawn --------------------------------------------------------------------------------------------------------

    def _spawn(self, request: Message, descriptors: list[int]) -> Message:
        sock, output = descriptors
        status_in, status_out = os.pipe()
        bwrap = None if self._is_root else shutil.which("bwrap")
        if bwrap is not None:
            child = self._start_bubblewrap(bwrap, request, sock, output, status_out)
        else:
            child = os.fork()
            if child == 0:
                self._child(request, sock, output, status_out)  # does not return
        os.close(status_out)
        with os.fdopen(status_in) as lines:
            init, isolation = _read_report(lines)
        if isolation is None:
            _, status = os.waitpid(child, 0)
            raise RuntimeError(f"a runner could not be confined (status {os.waitstatus_to_exitcode(status)})")
        if "error" in isolation:
            os.waitpid(child, 0)
            raise RuntimeError(isolation["error"])
        isolation["missing"] = self._missing + isolation["missing"]
        if bwrap is not None:
            isolation["namespaces"] = ["user", *confine.NAMESPACES]
        pid = child if init is None else init
        alone = "pid" in isolation["namespaces"]
        self._waits[pid] = (child, alone)
        if self._contained:
            isolation["namespaces"] = list(confine.NAMESPACES)
        return {"pid": pid, "isolation": isolation, "alone": alone}

    def _watch(self, request: Message, _: list[int]) -> Message:
        if self._contained:
            self._suspect = request["uid"]
        return {}

    def _child(self, request: Message, sock: int, output: int, status: int) -> None:
        """In the forked child: leave namespaces, then become the runner, or its init and the runner below that."""
        code = 1
        try:
            _close_all_but({0, 1, 2, sock, output, status})
            confine.die_with_parent()
            isolation = confine.Isolation()
            if self._is_root and not self._contained:
                self._leave_namespaces(isolation)
            if "pid" in isolation.namespaces:
                init = os.fork()
                if init != 0:
                    os.write(status, f"{init}\n".encode())
                    code = _wait_as(init, [sock, output, status])
                    return
                confine.die_with_parent()
                if "mount" in isolation.namespaces:
                    confine.mount_proc()
                runner = os.fork()
                if runner != 0:
                    code = _wait_as(runner, [sock, output, status])
                    return
            become_runner(request, sock, output, status, isolation)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _leave_namespaces(self, isolation: confine.Isolation) -> None:
        for name in confine.NAMESPACES:
            if name == "mount" and not self._private_mounts:
                continue
            if confine.unshare(name):
                isolation.namespaces.append(name)
                if name == "network":
                    confine.raise_loopback()
            else:
                isolation.missing.append(f"{name} namespace: not permitted here")

    def _start_bubblewrap(self, bwrap: str, request: Message, sock: int, output: int, status: int) -> int:
        keep = confine.needed_paths([os.path.dirname(os.path.abspath(__file__))])
        command = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if "--disable-userns" in subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout:
            command.append("--disable-userns")
        command += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        for name in sorted(os.listdir("/dev")):
            if name.startswith("nvidia"):
                command += ["--dev-bind-try", f"/dev/{name}", f"/dev/{name}"]
        home = os.path.expanduser("~")
        hidden = {folder for folder in (*confine.PRIVATE_FOLDERS, home) if os.path.isdir(folder)} - {"/dev/mqueue", "/"}
        for folder in sorted(hidden):
            command += ["--size", str(1 << 30), "--tmpfs", folder]
        for folder in keep:
            if any(folder != hide and folder.startswith(hide.rstrip("/") + "/") for hide in hidden):
                command += ["--ro-bind", folder, folder]
        scratch = request["rules"]["scratch"]
        with contextlib.suppress(OSError):
            os.chmod(scratch, 0o700)  # an earlier process of the same user may have locked it
        command += ["--bind", scratch, scratch, "--chdir", scratch, "--clearenv"]
        for name, value in {**os.environ, "PATH": os.environ.get("PATH", os.defpath)}.items():
            command += ["--setenv", name, value]
        boot = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.py")
        arguments = json.dumps({"request": request, "sock": sock, "output": output, "status": status})
        command += ["--", sys.executable, "-I", boot, "runner", arguments]
        # Started with an empty environment: /proc/1/environ inside shows the launcher's.
        child = os.fork()
        if child == 0:
            try:
                for descriptor in (sock, output, status):
                    os.set_inheritable(descriptor, True)
                os.execve(bwrap, command, {})
            finally:
                os._exit(1)
        return child

    # -- reap ---------------------------------------------------------------------------------------------------------

    def _reap(self, request: Message, _: list[int]) -> Message:
        pid = request["pid"]
        child, alone = self._waits.pop(pid)
        status = _wait_until(child, time.monotonic() + request["grace_s"])
        killed = status is None
        if killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            status = _wait_until(child, time.monotonic() + _REAP_S)
        if request["uid"] is not None and not alone:  # the end of a pid namespace's init is that of all in it
            confine.kill_all_of(request["uid"])
            if request["uid"] == self._suspect:
                self._suspect = None
        if status is None:
            raise TimeoutError(f"process {pid} did not die within {_REAP_S:.0f} s of SIGKILL")
        return {"status": status, "killed": killed}


def become_runner(request: Message, sock: int, output: int, status: int, isolation: confine.Isolation) -> None:
    """Turns this process into the runner of `request` and serves until its socket closes."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(request["environment"])
    confine.restrict(confine.Rules(**request["rules"]), isolation)
    try:
        os.chdir(request["rules"]["scratch"])  # as its owner: root may lack the right to enter
    except OSError:  # its user's earlier processes locked it, or took it away: that it cannot write is their fault
        os.chdir("/")
    packages = os.path.dirname(os.path.abspath(os.__file__))
    if not os.access(
        packages, os.R_OK | os.X_OK, effective_ids=True
    ):  # imports would fail in the submission, and look like its fault
        error = f"uid {os.geteuid()} cannot read {packages}: install Python and kbenv where every user may read them"
        os.write(status, (json.dumps({"error": error}) + "\n").encode())
        os._exit(1)
    os.write(status, (json.dumps(isolation.to_json()) + "\n").encode())
    os.close(status)

    from .runner.serve import serve

    serve(Channel(socket.socket(fileno=sock)), request)


def _read_report(lines: IO[str]) -> tuple[int | None, Message | None]:
    """The pid of the runner's init (where there is one) and what the runner was given, which come in either order."""
    init: int | None = None
    isolation: Message | None = None
    for line in lines:
        if line.strip().isdigit():
            init = int(line)
        else:
            isolation = json.loads(line)
        if isolation is not None and (init is not None or "error" in isolation or "pid" not in isolation["namespaces"]):
            return init, isolation
    return init, None


def _wait_as(child: int, close: list[int]) -> int:
    """Waits for `child`, reaping orphans meanwhile; its exit code, 128 + signal when a signal ended it."""
    for descriptor in close:
        os.close(descriptor)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _wait_until(child: int, deadline: float) -> int | None:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code <= 128 else 128 - code
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)
