"""The process sandbox: the judge as a child process on this machine, runners confined below it.

As root each runner has a uid of its own and its own namespaces; without root, bubblewrap where it is installed. What
could not be had is in the verdict. Memory and CPU are limited per process only: the Docker sandbox limits the whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from kbenv.protocol import Limits
from kbenv.sandbox.confine import HEADER_FOLDERS
from kbenv.sandbox.gpu import canonical
from kbenv.sandbox.wire import Channel, pair

_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TZ", "SYSTEMROOT", *HEADER_FOLDERS)
_BOOT = Path(__file__).resolve().parent / "boot.py"


class ProcessCarrier:
    """A judge on this machine: for the CPU, or for the GPU that `visible_device` names to CUDA_VISIBLE_DEVICES.

    `ahead`: it judges nothing and builds for others.
    """

    name = "process"

    def __init__(self, visible_device: str | None = None, *, ahead: bool = False) -> None:
        self._ahead = ahead
        self.lock: str | None = None if ahead else "cpu" if visible_device is None else canonical(visible_device)
        self.software: dict[str, str] = {}
        self.missing: tuple[str, ...] = ()
        self._visible_device = visible_device
        self._process: subprocess.Popen[bytes] | None = None
        self._root: Path | None = None
        self._log: IO[bytes] | None = None

    def start(self, device: str, limits: Limits) -> Channel:
        """See `Carrier.start`."""
        self._root = Path(tempfile.mkdtemp(prefix="kbenv-"))
        self._root.chmod(0o711)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        ours, theirs = pair()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-I", str(_BOOT), "judge", str(self._root), f"builds={build_cache()}",
                    *(["ahead"] if self._ahead else []),
                ],
                stdin=theirs.fileno(), stdout=self._log, stderr=self._log,
                env=self._environment(), start_new_session=True, cwd="/",
            )  # fmt: skip
        finally:
            theirs.close()
        return Channel(ours)

    def build_worker(self) -> ProcessCarrier | None:
        """See `Carrier.build_worker`: nothing is kept without root."""
        return ProcessCarrier(ahead=True) if os.geteuid() == 0 else None

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's environment that is not named here: keys and tokens stay outside."""
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return passed | judge_environment(self._visible_device) | {"PATH": path}

    def stop(self) -> None:
        """See `Carrier.stop`."""
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

    def last_words(self) -> str:
        """See `Carrier.last_words`."""
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        return self._log.read().decode(errors="replace").strip()


def build_cache() -> Path:
    """Where what compilers made is kept between judges on this machine; it may be removed at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "kbenv" / "builds"


def judge_environment(visible_device: str | None) -> dict[str, str]:
    """What every judge's environment says, whatever carries it."""
    return {
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": visible_device or "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
