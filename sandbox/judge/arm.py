"""The judge's side of one runner: start it, ask it, stop it, and turn whatever happens into one kind of failure.

An arm is the reference's, the submission's or the null runner's. What it answers is checked against the one schema that
the judge expects; what it prints is collected, bounded, as untrusted text.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import signal
import stat
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import cgroup
from ..wire import MAX_RUNNER_FRAME_BYTES, Channel, ClosedError, DeadlineError, MalformedError, Message, pair
from ..zygote import Zygote
from .idle import Idleness
from .proc import (
    arrivals,
    descendants,
    left_processor,
    open_files,
    pids_of,
    private_bytes,
    processor_ns,
    runs,
    shared_bytes,
    tasks,
    uids,
)  # fmt: skip
from .setting import Setting

REFERENCE_S = 300.0
"""Within this a trusted runner answers anything."""
_WATCH_S = 0.25
_PAUSE_ROUNDS = 50
_STILL_S = 5.0
_STILL_NS = 50_000
"""Processor time that a stopped runner may still be charged with: that of an interrupt."""
_BUSY_NS, _BUSY_TURNS = 1_000_000, 1
"""And of several, on a busy machine, in one turn of a runner, which has three at least: it moves no median.

Nothing of a submission has run in it: who runs has come onto a processor, and that is never forgiven."""
_SETTLED_S = 5e-5
_PAGE = os.sysconf("SC_PAGE_SIZE")
KINDS = ("load", "compile", "memory", "access", "runtime", "shape", "dtype")


class ArmError(Exception):
    """A runner failed.

    Attributes:
        kind: one of KINDS, or "died", "timeout", "malformed".
        signal: the signal that ended it, for "died".
    """

    def __init__(self, kind: str, message: str, detail: str | None = None, signal_number: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.signal = signal_number


class Arm:
    """One runner; a context manager.

    A `blank` one is started while the judge goes on. It holds nothing of the problem nor of the submission until
    `begin`, which must come before anything else is asked of it; in the meantime its uid cannot reach it (`confine`).
    """

    def __init__(
        self, zygote: Zygote, role: str, setting: Setting, uid: int | None, scratch: str, *, blank: bool = False,
        waiting_uid: int | None = None,
    ) -> None:  # fmt: skip
        self.role = role
        self._zygote = zygote
        self._trusted = {str(pid) for pid in (1, os.getpid(), os.getppid(), zygote.pid)}
        self._setting = setting
        self._uid = uid
        ours, theirs = pair()
        read_end, write_end = os.pipe()
        self._printed = _Printed(read_end, setting.output_bytes)
        try:
            self._started = zygote.spawn(setting.request(role, uid, scratch, waiting_uid), theirs, write_end)
        finally:
            theirs.close()
            os.close(write_end)
        self._blank = blank
        self._channel = Channel(ours, max_frame_bytes=MAX_RUNNER_FRAME_BYTES, spin=setting.device == "cuda")
        self._ended: tuple[int, bool] | None = None
        self._memory = cgroup.Memory()
        self._shared_before = self._memory.shared_bytes() if zygote.contained else 0
        self._paused: set[int] = set()
        self._ran_ns = self._busy_turns = 0
        self._arrivals: dict[str, int] = {}
        self.build: Callable[[Any, float, Callable[[], None]], tuple[Message, list[int]]] | None = None
        """What answers a request to build within a time, with an eye on this arm; None: the runner builds itself."""
        self.watch: Callable[[], None] = lambda: None
        """What else to look at now and then while an answer is awaited."""
        if not blank:
            with self._stopped_on_error():
                self._await_start()
                self._watch_over()

    def rest(self) -> None:
        """Waits until a blank runner is ready, and stops it. Raises ArmError: it is not fit for a turn, and gone."""
        with self._stopped_on_error():
            if not self._paused:
                self._await_start()
                self.pause()
                self.settle()

    def begin(self) -> None:
        """A blank runner's turn. Raises ArmError: as `rest`."""
        with self._stopped_on_error():
            if self._paused:
                self.expect_still(patient=False)
                self.resume()
            else:
                self._await_start()
            processes = None if self._uid is None else self._setting.processes
            self.ask("begin", timeout_s=self._setting.start_s, processes=processes)
            self._expect_uid()
            self._blank = False
            self._shared_before = self._memory.shared_bytes() if self._zygote.contained else 0
            self._watch_over()

    def _await_start(self) -> None:
        self._started.get()
        self.receive(self._setting.start_s)

    @contextlib.contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def _watch_over(self) -> None:
        if self.role == "submission" and self._uid is not None:
            self._zygote.watch(self._uid)

    def _expect_uid(self) -> None:
        """Every thread has the role's uid and no other, where /proc shows that: what is to be ended is found by it."""
        if self._uid is None:
            return
        runner = set(descendants(self.pid)) - ({self.pid} if self.alone else set())  # of a namespace the init is ours
        others = set().union(*map(uids, tasks(runner))) - {self._uid}
        if others:
            raise ArmError("malformed", f"the {self.role}'s runner is to be uid {self._uid} alone; found {others}")

    @property
    def pid(self) -> int:
        pid: int = self._started.get()["pid"]
        return pid

    @property
    def isolation(self) -> Message:
        isolation: Message = self._started.get()["isolation"]
        return isolation

    @property
    def alone(self) -> bool:
        alone: bool = self._started.get()["alone"]
        return alone

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def release(self) -> None:
        """Lets an honest runner end by itself, while the judge goes on; `stop` must follow."""
        self._channel.close()

    def stop(self) -> None:
        """Kills the runner's whole tree; no process of it is left when this returns."""
        self._channel.close()
        self._reap(grace_s=0.0)
        self._printed.join()

    @property
    def printed(self) -> str:
        """What the runner has printed so far, bounded."""
        self._printed.settle()
        return self._printed.text()

    def ask(
        self, op: str, *, timeout_s: float, must_work: bool = False, descriptors: Sequence[int] = (), **content: Any
    ) -> Message:
        """One question and its answer; the descriptors are closed. Raises ArmError."""
        self.send(op, descriptors, **content)
        return self.receive(timeout_s, must_work=must_work)

    def send(self, op: str, descriptors: Sequence[int] = (), **content: Any) -> None:
        try:
            self._channel.send({"op": op, **content}, descriptors)
        except ClosedError:
            raise self._died() from None
        except DeadlineError:
            raise ArmError("timeout", f"the {self.role} stopped reading") from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def receive(self, timeout_s: float, *, must_work: bool = False) -> Message:
        """The next answer. `must_work`: who does nothing is not waited for until the end. Raises ArmError."""
        deadline = time.monotonic() + timeout_s
        idleness = Idleness(self._pids) if must_work else None
        while True:
            try:
                answer = self._channel.receive(max(0.0, min(_WATCH_S, deadline - time.monotonic())))
                if self.role == "submission" and "build" in answer:
                    self._answer_build(answer["build"], deadline)
                    if idleness is not None:
                        idleness.restart()
                    continue
                break
            except DeadlineError:
                self.check_host_memory()
                self.watch()
                if time.monotonic() >= deadline:
                    raise ArmError("timeout", f"no answer within {timeout_s:.4g} s") from None
                if idleness is not None and idleness.lasts():
                    raise ArmError(
                        "timeout", f"no answer, and no work for one, within {idleness.limit_s:.4g} s"
                    ) from None
            except ClosedError:
                raise self._died() from None
            except MalformedError as e:
                raise ArmError("malformed", f"the {self.role} sent {e}") from None
        if "error" in answer:
            raise _error_from(answer["error"], self.role)
        return answer

    def _answer_build(self, request: Any, deadline: float) -> None:
        """A submission imports an extension, in the middle of what it was asked for."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ArmError("timeout", "no answer in time")
        self.check_host_memory()  # which one that keeps asking would never see
        reply: Message = {"built": "declined"}
        descriptors: list[int] = []
        if self.build is not None:
            reply, descriptors = self.build(request, remaining, self.check_host_memory)
        try:
            self._channel.send(reply, descriptors, timeout_s=max(0.0, deadline - time.monotonic()))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    @property
    def ended(self) -> bool:
        """Whether the runner is known to be gone."""
        return self._ended is not None

    @property
    def has_answered(self) -> bool:
        """Whether something has come from the runner that was not received yet, or it has closed its channel."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        return bool(poll.poll(0))

    def pause(self) -> None:
        """Stops every process of the runner; returns when a look finds no further one, and all threads stand still."""
        stopped: set[int] = set()
        found = {self.pid}  # often all there is; nobody else has this number before it is waited for
        for _ in range(_PAUSE_ROUNDS):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= found
            found = set(self._pids()) - stopped
            if not found:
                self._paused = stopped
                self._await_still()
                return
        raise ArmError("malformed", f"the {self.role} starts processes faster than they can be stopped")

    def _await_still(self) -> None:
        """A thread in a long system call goes on until that returns.

        Whoever is continued from here on comes onto a processor once more: so it is known of any, however short. One
        that was preempted on its way to a stop comes once more, too, which is waited for where the kernel lets us.
        """
        deadline = time.monotonic() + _STILL_S
        while True:
            if not self._runs():
                self._left_processors()
                self._arrivals = arrivals(self._paused)
                if not self._runs():  # nobody was continued before that was read
                    return
            if time.monotonic() > deadline:
                raise ArmError("malformed", f"the {self.role} did not stand still within {_STILL_S:.0f} s")
            time.sleep(2e-5)

    def _runs(self) -> bool:
        return any(runs(task) for task in tasks(self._paused))

    def _left_processors(self) -> bool:
        return all([left_processor(task) for task in tasks(self._paused)])

    def settle(self) -> None:
        """After `pause`: waits until no thread is charged with processor time any more.

        A thread counts as stopped shortly before it leaves the processor, and may have to serve interrupts there first;
        its time is counted when it leaves. Where the kernel does not let us wait for that, two equal looks must do.
        """
        if self._left_processors():
            self._ran_ns = processor_ns(self._paused)
            return
        deadline = time.monotonic() + _STILL_S
        self._ran_ns, before = processor_ns(self._paused), -1
        while self._ran_ns != before and time.monotonic() < deadline:
            time.sleep(_SETTLED_S)
            self._ran_ns, before = processor_ns(self._paused), self._ran_ns

    def expect_still(self, *, patient: bool = True) -> None:
        """No thread has run since `pause`: a timer or another process may continue what was stopped.

        `patient`: it may have been charged, since `settle`, with a little more of the time before it was stopped.
        """
        if arrivals(self._paused) != self._arrivals or self._runs():
            raise ArmError("malformed", f"the {self.role} ran while it was stopped")
        ran_ns = processor_ns(self._paused) - self._ran_ns
        if ran_ns <= _STILL_NS:
            return
        self._busy_turns += 1
        if not patient or ran_ns > _BUSY_NS or self._busy_turns > _BUSY_TURNS:
            raise ArmError("malformed", f"the {self.role} ran for {ran_ns / 1e6:.3g} ms while it was stopped")

    @property
    def paused(self) -> frozenset[int]:
        """The processes that `pause` stopped."""
        return frozenset(self._paused)

    def resume(self) -> None:
        for pid in self._paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        """The runner's processes, orphans too where a pid namespace or a uid of its own shows them."""
        has_uid = self._uid is not None and not self._blank
        return pids_of(self._uid, self._trusted) if has_uid and not self.alone else descendants(self.pid)

    def _proportional_bytes(self) -> int | None:
        """As `resident_bytes`, a page shared by n processes counted as 1/n in each."""
        total = 0
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
        return total or None

    def resident_bytes(self) -> int | None:
        """Resident memory of the runner's processes, as the judge sees it; None where /proc does not show them."""
        total = 0
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * _PAGE
        return total or None

    def resident_peak_bytes(self) -> int | None:
        """Peak resident memory since `reset_resident_peak`, the processes' own peaks together; None as above."""
        peaks = []
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as file:
                peaks += [int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")]
        return sum(peaks) or None

    def reset_resident_peak(self) -> bool:
        """Starts the peak anew (clear_refs); False where the kernel does not let the judge."""
        done = False
        for pid in self._pids():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/clear_refs", "w") as file:
                file.write("5")
                done = True
        return done

    def helper_bytes(self) -> int:
        """Memory that the runner's other processes have to themselves: pages that no forked one shares any more."""
        total = 0
        for pid in self._pids():
            if pid != self.pid:
                with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
                    total += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
        return total

    def mapped_bytes(self) -> int:
        """Memory that the runner's processes map writable and shared; 0 where /proc does not show it."""
        return sum(map(shared_bytes, self._pids()))

    def private_bytes(self) -> int:
        """Anonymous memory that is resident, the runner's and what its other processes have to themselves."""
        return private_bytes(self.pid) + self.helper_bytes()

    def _file_bytes(self) -> int:
        """What lies in files without a name (memfds above all) that only the runner's processes hold open.

        In a container the judge may not look at another user's descriptors: there it is what has been added to files in
        memory since the runner was started, by anybody.
        """
        if self._zygote.contained:
            return max(0, self._memory.shared_bytes() - self._shared_before)
        files: dict[tuple[int, int], int] = {}
        for pid in self._pids():
            for kept in open_files(pid):
                if stat.S_ISREG(kept.st_mode) and kept.st_nlink == 0:
                    files[kept.st_dev, kept.st_ino] = kept.st_blocks * 512
        for kept in open_files(os.getpid()):
            files.pop((kept.st_dev, kept.st_ino), None)
        return sum(files.values())

    def check_host_memory(self) -> None:
        """Raises ArmError when the runner holds more memory than it may, and ends it."""
        resident = self.resident_bytes()
        if resident is not None and resident > self._setting.host_memory_bytes:
            resident = self._proportional_bytes()  # pages that forked processes share were counted once for each
        resident = max(resident or 0, self._file_bytes())  # not the sum: what is mapped is resident too
        if resident > self._setting.host_memory_bytes:
            self._reap(grace_s=0.0)
            raise ArmError(
                "memory",
                f"{resident >> 20} MiB of host memory; at most {self._setting.host_memory_bytes >> 20} are allowed",
            )

    def _died(self) -> ArmError:
        status, killed = self._reap(grace_s=2.0)
        if killed:
            return ArmError("died", f"the {self.role} closed its channel and lived on")
        if status < 0:
            name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
            return ArmError("died", f"the process was ended by {name}", signal_number=-status)
        return ArmError("died", f"the process ended by itself (exit code {status})")

    def _reap(self, *, grace_s: float) -> tuple[int, bool]:
        if self._ended is None and not self._started.failed:
            # A blank runner has no children, and its uid may be that of one that runs.
            self._ended = self._zygote.reap(self.pid, None if self._blank else self._uid, grace_s=grace_s)
        return self._ended or (1, False)


def _error_from(error: Any, role: str) -> ArmError:
    fields = {"kind": str, "message": str, "detail": str}
    if not isinstance(error, dict) or not all(isinstance(error.get(name), kind) for name, kind in fields.items()):
        return ArmError("malformed", f"the {role} reported an error of no known form")
    kind = error["kind"] if error["kind"] in KINDS else "runtime"
    name = error["type"] if isinstance(error.get("type"), str) else "Exception"
    plain = kind in ("shape", "dtype") or name == "NoModelError"
    message = error["message"] if plain else f"{name}: {error['message']}"
    return ArmError(kind, message[:600], error["detail"][:32768] or None)


class _Printed:
    """Drains a pipe so that a chatty runner never blocks; keeps the first half and the last half of the limit."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._descriptor, 1 << 16):
            with self._lock:
                room = self._half - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:] if room < len(chunk) else b""
                excess = len(self._tail) - self._half
                if excess > 0:
                    self._dropped += excess
                    del self._tail[:excess]
        os.close(self._descriptor)

    def settle(self) -> None:
        """Waits, not for long, until what is in the pipe has been read."""
        deadline = time.monotonic() + 0.5
        waiting = array.array("i", [1])
        while waiting[0] and time.monotonic() < deadline and self._thread.is_alive():
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._descriptor, termios.FIONREAD, waiting)
            time.sleep(0.001)  # also lets the thread take in what it has just read

    def join(self) -> None:
        self._thread.join(timeout=5.0)

    def text(self) -> str:
        with self._lock:
            middle = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
            return (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
