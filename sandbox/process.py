"""The process sandbox: the judge as a child process on this machine, runners confined below it.

As root each runner has a uid of its own and its own namespaces; without root, bubblewrap where it is installed. What
could not be had is in the verdict. Memory and CPU are limited per process only: the Docker sandbox limits the whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

from kbenv.errors import SandboxError
from kbenv.sandbox.job import Job, Result, fault_error
from kbenv.sandbox.wire import Channel, ClosedError, DeadlineError, MalformedError, Message, pair

_START_S = 180.0
_SLACK_S = 900.0
"""Beyond a job's own limit: reference, redrawing, comparing."""
_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TZ", "SYSTEMROOT")
_BOOT = Path(__file__).resolve().parent / "boot.py"


class ProcessSandbox:
    """Jobs on one device: "cpu", or the GPU that `visible_device` names to CUDA_VISIBLE_DEVICES."""

    name = "process"

    def __init__(self, visible_device: str | None = None) -> None:
        self._visible_device = visible_device
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._root: Path | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Job, on_phase: Callable[[str], None]) -> Result:
        """See `Sandbox.run`. Waits for the device while another judge of this user holds it."""
        with _device_lock(self._visible_device or "cpu"):
            try:
                channel = self._start()
                channel.send(job.to_message())
                return self._await_result(channel, job, on_phase)
            except (ClosedError, DeadlineError, MalformedError) as e:
                log = self._log_tail()
                self.close()
                raise SandboxError(f"the judge was lost ({e}); its last words: {log or 'none'}") from e
            except BaseException:
                self.close()  # a judge in the middle of a job is of no further use
                raise

    def _await_result(self, channel: Channel, job: Job, on_phase: Callable[[str], None]) -> Result:
        while True:
            answer = channel.receive(job.protocol.limits.job_s + _SLACK_S)
            if "phase" in answer:
                on_phase(answer["phase"])
            elif "fault" in answer:
                raise fault_error(answer["fault"])
            else:
                result: Result = answer["result"]
                return result

    def _start(self) -> Channel:
        if self._channel is not None:
            return self._channel
        self._root = Path(tempfile.mkdtemp(prefix="kbenv-"))
        self._root.chmod(0o711)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        ours, theirs = pair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_BOOT), "judge", str(self._root)],
                stdin=theirs.fileno(), stdout=self._log, stderr=self._log,
                env=self._environment(), start_new_session=True, cwd="/",
            )  # fmt: skip
        finally:
            theirs.close()
        self._channel = Channel(ours)
        hello: Message = self._channel.receive(_START_S)
        if not hello.get("ready"):
            raise SandboxError(f"the judge did not start: {hello}")
        return self._channel

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's environment that is not named here: keys and tokens stay outside."""
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return passed | {
            "PATH": path,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": self._visible_device or "",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }

    def close(self) -> None:
        """Ends the judge and everything below it; the next job starts a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5.0)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def _log_tail(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        return self._log.read().decode(errors="replace").strip()


@contextlib.contextmanager
def _device_lock(device: str) -> Iterator[None]:
    """One job at a time on a device, among all processes of this user."""
    folder = Path(tempfile.gettempdir()) / f"kbenv-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / device.replace("/", "_"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
