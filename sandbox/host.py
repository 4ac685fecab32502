"""The host's side of a judge: one protocol, whatever carries it. A judge stays warm between the jobs of one sandbox.

A judge that is lost, that fails a health check or that has served its number of jobs is ended; the next job gets a
fresh one. What happens to a job in the middle of a loss is the caller's business (the evaluator tries once more).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from kbenv.errors import SandboxError
from kbenv.protocol import Limits
from kbenv.sandbox.job import Job, Result, fault_error
from kbenv.sandbox.wire import Channel, ClosedError, DeadlineError, MalformedError, Message

RECYCLE_AFTER_JOBS = 200
_START_S = 180.0
_PING_S = 15.0
_SLACK_S = 900.0
"""Beyond a job's own limit: reference, redrawing, comparing."""


class Carrier(Protocol):
    """Starts a judge somewhere, and carries frames to it and back.

    Attributes:
        name: "process" or "docker".
        lock: what to hold while a job runs: one name for each device; None where judges may work side by side.
        software: what the carrier adds to a verdict's software: image, engine.
        missing: controls that it could not have here, in words.
    """

    name: str
    lock: str | None
    software: dict[str, str]
    missing: tuple[str, ...]

    def start(self, device: str, limits: Limits) -> Channel:
        """Starts a judge for jobs on `device` within `limits`. Raises SandboxError."""

    def build_worker(self) -> Carrier | None:
        """A carrier of judges that build, without the device, what this one's then find; None: not to be had."""

    def last_words(self) -> str:
        """The end of what the judge wrote to its log."""

    def stop(self) -> None:
        """Ends the judge and everything below it; nothing of it is left. Does nothing when none runs."""


class Sandbox:
    """Holds untrusted code on one device; a context manager that starts its judge when first used."""

    def __init__(self, carrier: Carrier, *, recycle_after_jobs: int = RECYCLE_AFTER_JOBS) -> None:
        self.name = carrier.name
        self._carrier = carrier
        self._recycle_after_jobs = recycle_after_jobs
        self._channel: Channel | None = None
        self._limits: Limits | None = None
        self._jobs = 0
        self._aborted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def software(self) -> dict[str, str]:
        return self._carrier.software

    @property
    def missing(self) -> tuple[str, ...]:
        return self._carrier.missing

    def run(self, job: Job, on_phase: Callable[[str], None]) -> Result:
        """Judges one submission. Waits for the device while another judge of this user holds it.

        Raises:
            ReferenceFaultError: the problem's reference failed.
            DeviceMemoryError: the device cannot hold the job; the message says need and have.
            SandboxError: the judge could not be started, died, or failed.
        """
        return self._send(job.device, job.protocol.limits, job.to_message(), on_phase)

    def audit(self, job: Job, on_phase: Callable[[str], None]) -> Result:
        """Audits the job's problem; the source plays no part.

        Raises:
            ReferenceFaultError: the reference takes too long; all else that it does wrong is in the result.
            DeviceMemoryError, SandboxError: as `run`.
        """
        return self._send(job.device, job.protocol.limits, {"audit": job.to_message()}, on_phase)

    def baseline(self, job: Job, variants: Sequence[str], on_phase: Callable[[str], None]) -> Result:
        """Times variants of the problem's reference; the source plays no part.

        Raises:
            ReferenceFaultError, DeviceMemoryError, SandboxError: as `run`.
        """
        message = {"baseline": job.to_message() | {"variants": list(variants)}}
        return self._send(job.device, job.protocol.limits, message, on_phase)

    def build_worker(self) -> Sandbox | None:
        """One whose `build` makes what a job here then finds built; None where that cannot be had."""
        carrier = self._carrier.build_worker()
        return None if carrier is None else Sandbox(carrier, recycle_after_jobs=self._recycle_after_jobs)

    def build(self, job: Job, stand_in: Message | None) -> Result:
        """Builds what the job's submission asks for while it is loaded, without the device (`judge/ahead`).

        Args:
            stand_in: what `describe` says of a GPU; None for the CPU.

        Raises:
            SandboxError: as `run`; a fault of the submission's is none.
        """
        return self._send(
            job.device, job.protocol.limits, {"build": job.to_message() | {"stand_in": stand_in}}, lambda _: None
        )

    def describe(self, device: str, limits: Limits) -> Result:
        """What the judge says of its machine: "hardware", "software", of a GPU "stand_in". Raises SandboxError."""
        return self._send(device, limits, {"describe": {"device": device}}, lambda _: None)

    def _send(self, device: str, limits: Limits, message: Message, on_phase: Callable[[str], None]) -> Result:
        with _device_lock(self._carrier.lock):
            try:
                self._expect_not_aborted()
                channel = self._ready_channel(device, limits)
                channel.send(message)
                return self._await_result(channel, limits, on_phase)
            except (ClosedError, DeadlineError, MalformedError) as e:
                log = self._carrier.last_words()
                self.close()
                raise SandboxError(f"the judge was lost ({e}); its last words: {log or 'none'}") from e
            except BaseException:
                self.close()  # a judge in the middle of a job is of no further use
                raise

    def abort(self) -> None:
        """From another thread: the job that runs is lost at once, and none begins after it. `close` stays to be called
        by the thread that runs jobs."""
        self._aborted = True
        if (channel := self._channel) is not None:
            channel.shut()

    def _expect_not_aborted(self) -> None:
        if self._aborted:
            raise SandboxError("the sandbox was told to stop")

    def close(self) -> None:
        """Ends the judge and everything below it; the next job starts a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._carrier.stop()

    def _ready_channel(self, device: str, limits: Limits) -> Channel:
        """The warm judge's, if it is fit for one more job; else a fresh one's."""
        if self._channel is not None and (
            self._jobs >= self._recycle_after_jobs or limits != self._limits or not self._answers(self._channel)
        ):
            self.close()
        if self._channel is None:
            self._channel = self._carrier.start(device, limits)
            self._limits, self._jobs = limits, 0
            self._expect_not_aborted()  # an abort that came before the channel was there to be shut
            hello = self._channel.receive(_START_S)
            if not hello.get("ready"):
                raise SandboxError(f"the judge did not start: {hello}")
        self._jobs += 1
        return self._channel

    def _answers(self, channel: Channel) -> bool:
        try:
            channel.send({"ping": True}, timeout_s=_PING_S)
            return channel.receive(_PING_S) == {"pong": True}
        except (ClosedError, DeadlineError, MalformedError):
            return False

    def _await_result(self, channel: Channel, limits: Limits, on_phase: Callable[[str], None]) -> Result:
        while True:
            answer: Message = channel.receive(limits.job_s + _SLACK_S)
            if "phase" in answer:
                on_phase(answer["phase"])
            elif "fault" in answer:
                raise fault_error(answer["fault"])
            else:
                if not answer["healthy"]:
                    self.close()  # the verdict stands; the next job does not start on a device that is ill
                result: Result = answer["result"]
                return result


@contextlib.contextmanager
def _device_lock(name: str | None) -> Iterator[None]:
    """One job at a time on a device, among all processes of this user."""
    if name is None:
        yield
        return
    folder = Path(tempfile.gettempdir()) / f"kbenv-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / name.replace("/", "_"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
