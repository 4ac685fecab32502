"""The Docker sandbox: the judge in a container of its own, hardened, warm for as long as its sandbox lives.

The container holds no network, no capability but those that start runners under other users, no host folder, and
limits on memory, processes and CPU for all that runs in it. The code of the judge is sent over its standard input, so
that an engine on another machine serves as well, and an image is never older than kbenv. A container ends with the
process that started it; what a killed one leaves all the same is removed at the next start (`remove_orphans`).

Not guaranteed: limits that the engine does not enforce (`kbenv doctor` says which).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbenv.errors import SandboxError
from kbenv.protocol import Limits
from kbenv.sandbox.engine import IMAGE, LABEL, EngineError, EngineFacts, GpuAccess, find_image, reason_of
from kbenv.sandbox.gpu import canonical, number_of
from kbenv.sandbox.process import judge_environment
from kbenv.sandbox.wire import Channel, pair

if TYPE_CHECKING:
    from docker import DockerClient

CAPABILITIES = ("SETUID", "SETGID", "KILL")
"""Of the judge, to start runners as other users and to end them; a runner has none."""
_CODE = "/run/kbenv"
HOST_MODULES = ("choice", "docker", "engine", "gpu", "host", "image", "job", "process")
"""Of kbenv.sandbox: what stays on the host; all else is sent into the container."""
_DRIVER = "/run/kbenv-driver"
_DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_DRIVER_LIBRARIES = (
    "libcuda.so.*",
    "libnvidia-ml.so.*",
    "libnvidia-ptxjit*.so.*",
    "libnvidia-nvvm*.so.*",
    "libnvidia-gpucomp.so.*",
)
_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_TRUSTED_BYTES = {"cpu": 4 << 30, "cuda": 64 << 30}
"""Memory of judge, reference and null runner, beside the submission's; on a GPU the masters may lie on the host."""
_SHARE_OF_MEMORY = 0.95
"""Of the engine's machine at most: its own out-of-memory killer is to stay out of it."""
_SHARED_BYTES = 1 << 30
_BUILDS_BYTES = 2 << 30
"""For what compilers made: the judge keeps three quarters of it."""
_INODES = 65536
"""Of each tmpfs: the kernel's memory for a file counts, however empty the file is."""
_STOP_S = 10.0
_CREATE_S = 2.0
"""From when a request to create a container was cut off until it would exist."""
_LOOK_S = 0.05
_LOG_BYTES = 64 << 10
_FRAME = struct.Struct("!BxxxI")
_STDOUT = 1
_BOOTSTRAP = """
import json, os, sys
def take(count):
    data = b""
    while len(data) < count:
        chunk = os.read(0, count - len(data))
        if not chunk: sys.exit("the host went away")
        data += chunk
    return data
files = json.loads(take(int.from_bytes(take(4), "big")))
for path, text in files.items():
    path = os.path.join(sys.argv[1], path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file: file.write(text)
os.execv(sys.executable, [sys.executable, "-I", os.path.join(sys.argv[1], "boot.py"), "judge", *sys.argv[1:]])
"""


@dataclass(frozen=True)
class DockerSettings:
    """How containers are made.

    Attributes:
        image: name of an image that the engine has; it is never pulled or built here.
        runtime: an OCI runtime that the engine knows, such as "runsc" (gVisor); None for its default.
        gpu_access: how a GPU gets into a container: by NVIDIA's runtime, by CDI, or by device files and the driver's
            libraries from this machine; "auto" takes the first that the engine offers.
        cpus: processors for the whole container; None for all.
        mounts: folders of the engine's machine to show read-only at the same place, such as a model cache.
    """

    image: str = IMAGE
    runtime: str | None = None
    gpu_access: GpuAccess | Literal["auto"] = "auto"
    cpus: float | None = None
    mounts: tuple[str, ...] = ()


class DockerCarrier:
    """A judge in a container; for the CPU, or for the engine's GPU of index or UUID `gpu`.

    Raises:
        EngineError: the engine lacks the image, the runtime or a way to the GPU.
    """

    name = "docker"

    def __init__(self, client: DockerClient, facts: EngineFacts, gpu: str | None, settings: DockerSettings) -> None:
        self._settings = settings
        self._client = client
        self._facts = facts
        self._gpu = gpu
        self._gpu_access = _choose_gpu_access(self._facts, self._settings.gpu_access) if gpu is not None else None
        _check_runtime(self._facts, self._settings.runtime)
        self._image_environment: dict[str, str] = {}
        self.software = self._examine_image() | {"docker": self._facts.version}
        if self._settings.runtime:
            self.software["runtime"] = self._settings.runtime
        self.missing = _not_enforced(facts)
        place = "" if self._facts.is_local else f"{self._facts.address} "
        self.lock: str | None = place + ("cpu" if gpu is None else gpu if place else canonical(gpu))
        self._name: str | None = None
        """Of the container, from before it exists until it is removed."""
        self._is_created = False
        self._attached: Any = None
        self._log: deque[bytes] = deque()
        self._pumps: list[threading.Thread] = []

    def _examine_image(self) -> dict[str, str]:
        name = self._settings.image
        image_id = find_image(self._client, name)
        if image_id is None:
            build = "kbenv sandbox build" + ("" if name == IMAGE else f" --tag {name}")
            raise EngineError(f"the engine has no image {name}: make it with `{build}`")
        environment = self._client.images.get(image_id).attrs["Config"].get("Env") or []
        self._image_environment = dict(entry.partition("=")[::2] for entry in environment)
        if "LD_PRELOAD" in self._image_environment:
            raise EngineError(f"the image {name} sets LD_PRELOAD, which runs in every process: build one without it")
        return {"image": f"{name}@{image_id}"}

    def start(self, device: str, limits: Limits) -> Channel:
        """See `Carrier.start`."""
        from docker.errors import APIError

        options = self._options(device, limits)
        self._log = deque()
        try:
            with contextlib.suppress(APIError):  # what others left must not stop us
                remove_orphans(self._client)
            self._name = options["name"]
            container = self._client.containers.create(**options)
            self._is_created = True
            self._attached = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            container.start()
        except Exception as e:  # docker-py's, or whatever requests, urllib3 or paramiko raise below it
            self.stop()
            engine = f"the engine at {self._facts.address}"
            raise SandboxError(f"{engine} could not start a container: {reason_of(e)}") from e
        ours, theirs = pair()
        stream = _stream_of(self._attached)
        self._pumps = [
            threading.Thread(target=_send, args=(_code(), theirs, stream), daemon=True),
            threading.Thread(target=_receive, args=(stream, theirs, self._log), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()
        return Channel(ours)

    def build_worker(self) -> None:
        """See `Carrier.build_worker`: what is built stays in its container."""

    def _options(self, device: str, limits: Limits) -> dict[str, Any]:
        """Of `docker create`. What is not allowed here is not to be had inside."""
        from docker.types import LogConfig, Mount, Ulimit

        settings, gpu = self._settings, self._gpu_options()
        memory = limits.host_memory_bytes + _TRUSTED_BYTES[device]
        memory = min(memory, int(self._facts.memory_bytes * _SHARE_OF_MEMORY) or memory)
        writable = "rw,exec,nosuid,nodev"
        return {
            "name": f"kbenv-{os.getpid()}-{secrets.token_hex(4)}",
            "image": settings.image,
            "command": ["python3", "-I", "-c", _BOOTSTRAP, _CODE, "contained"],
            "entrypoint": [],
            "user": "0:0",
            "working_dir": "/",
            "environment": (
                judge_environment(None if self._gpu is None else "0")
                | _gpu_environment(self._gpu_access, self._image_environment)
            ),
            "labels": {LABEL: owner_label()},
            "stdin_open": True,
            "auto_remove": True,
            "init": True,
            "network_mode": "none",
            "ipc_mode": "private",
            "cap_drop": ["ALL"],
            "cap_add": list(CAPABILITIES),
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {
                "/tmp": f"{writable},size={_SHARED_BYTES},nr_inodes={_INODES},mode=1777",
                "/dev/shm": f"rw,noexec,nosuid,nodev,size={_SHARED_BYTES},nr_inodes={_INODES},mode=1777",
                _CODE: "rw,noexec,nosuid,nodev,size=64m,mode=0755",
                f"{_CODE}/builds": f"rw,noexec,nosuid,nodev,size={_BUILDS_BYTES},nr_inodes={_INODES},mode=0700",
                f"{_CODE}/scratch": f"{writable},size={limits.scratch_bytes},nr_inodes={_INODES},mode=1733",
                f"{_CODE}/scratch/trusted": f"{writable},size={limits.scratch_bytes},nr_inodes={_INODES},mode=0755",
            },
            "mem_limit": memory,
            "memswap_limit": memory,
            "pids_limit": 4 * limits.processes,
            "nano_cpus": round((settings.cpus or self._facts.cpus) * 1e9),
            "ulimits": [
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="nofile", soft=limits.open_files * 4, hard=limits.open_files * 4),
            ],
            "log_config": LogConfig(type="none"),
            "runtime": settings.runtime,
            "mounts": [Mount(path, path, type="bind", read_only=True) for path in settings.mounts],
        } | gpu  # fmt: skip

    def _gpu_options(self) -> dict[str, Any]:
        from docker.types import DeviceRequest

        if self._gpu is None:
            return {}
        if self._gpu_access == "nvidia":
            return {"device_requests": [DeviceRequest(device_ids=[self._gpu], capabilities=[["gpu"]])]}
        if self._gpu_access == "cdi":
            return {"device_requests": [DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={self._gpu}"])]}
        return _device_options(self._gpu)

    def stop(self) -> None:
        """See `Carrier.stop`. Takes seconds at most, whatever has become of the engine."""
        self._hang_up()
        if self._name is not None:
            name, self._name = self._name, None
            with _patience(self._client, _STOP_S):
                _remove(self._client, name, is_created=self._is_created)
        self._is_created = False
        self._client.close()  # idle connections; the next request opens new ones

    def _hang_up(self) -> None:
        """Ends the attached connection: that alone ends the container, if the engine hears of it."""
        if self._attached is None:
            return
        attached, self._attached = self._attached, None
        stream = _stream_of(attached)
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
        for pump in self._pumps:
            pump.join(timeout=_STOP_S)
        self._pumps = []
        for part in filter(None, (attached, stream, getattr(attached, "_response", None))):
            with contextlib.suppress(Exception):  # whatever docker-py's layers raise of a connection that is broken
                part.close()

    def last_words(self) -> str:
        """See `Carrier.last_words`."""
        return b"".join(self._log).decode(errors="replace").strip()[-4000:]


def _stream_of(attached: Any) -> Any:
    """The attached connection as a socket: docker-py wraps it, differently for each way to the engine."""
    return getattr(attached, "_sock", attached)


@contextlib.contextmanager
def _patience(client: DockerClient, timeout_s: float) -> Iterator[None]:
    """How long the engine may take for each answer."""
    usual, client.api.timeout = client.api.timeout, timeout_s
    try:
        yield
    finally:
        client.api.timeout = usual


def _remove(client: DockerClient, name: str, *, is_created: bool) -> None:
    """Removes a container and waits until it is gone; one that is not known to be created may still come into being."""
    from docker.errors import APIError, NotFound

    deadline = time.monotonic() + (0.0 if is_created else _CREATE_S)
    with contextlib.suppress(Exception):  # an engine that does not answer removes it by itself: its input has ended
        while True:
            try:
                client.api.remove_container(name, force=True)
                return
            except NotFound:
                if time.monotonic() >= deadline:
                    return
                time.sleep(_LOOK_S)
            except APIError:  # it is being removed already
                client.api.wait(name, timeout=_STOP_S, condition="removed")
                return


def owner_label() -> str:
    """Names this process among all that use the engine: machine, its boot, process, and when that started."""
    return " ".join((_machine(), _boot(), str(os.getpid()), _started(os.getpid()) or "0"))


def remove_orphans(client: DockerClient, *, everyone: bool = False) -> list[str]:
    """Removes our containers whose process is gone from this machine; names them.

    Args:
        everyone: those of living processes and of other machines, too.
    """
    from docker.errors import APIError

    removed = []
    for container in client.containers.list(all=True, sparse=True, filters={"label": LABEL}):
        if everyone or _is_orphan(container.attrs["Labels"][LABEL]):
            with contextlib.suppress(APIError):  # another process is removing it
                container.remove(force=True)
                removed.append((container.attrs["Names"] or [container.short_id])[0].lstrip("/"))
    return removed


def _is_orphan(label: str) -> bool:
    host, boot, pid, started = (label.split(" ") + [""] * 4)[:4]
    if host != _machine():
        return False
    return boot != _boot() or not pid.isdecimal() or (_started(int(pid)) or "0") != started


def _machine() -> str:
    """Where process numbers mean the same: of one name there can be several pid namespaces, as in containers."""
    try:
        return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def _started(pid: int) -> str | None:
    """When a process of this machine started, in the system's own words; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return None
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return "-".join(found.split()) or None


# -- what goes in and comes out ---------------------------------------------------------------------------------------


def _code() -> bytes:
    """The judge's own code as `_BOOTSTRAP` takes it."""
    folder = Path(__file__).resolve().parent
    inside = [
        path
        for path in sorted(folder.rglob("*.py"))
        if path.relative_to(folder).parts[0].removesuffix(".py") not in HOST_MODULES
    ]
    body = json.dumps({str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in inside}).encode()
    return len(body).to_bytes(4, "big") + body


def _send(first: bytes, source: socket.socket, stream: Any) -> None:
    """Carries what the host says into the container, until either end closes."""
    with contextlib.suppress(OSError):
        stream.sendall(first)
        while data := source.recv(1 << 16):
            stream.sendall(data)
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


def _receive(stream: Any, sink: socket.socket, log: deque[bytes]) -> None:
    """Carries what the container says to the host: its output as frames, its errors to the log, bounded.

    Closes `sink` at the end, so that the host hears of it and `_send` ends as well.
    """
    with contextlib.suppress(OSError, EOFError):
        while True:
            kind, length = _FRAME.unpack(_read(stream, _FRAME.size))
            data = _read(stream, length)
            if kind == _STDOUT:
                sink.sendall(data)
                continue
            log.append(data)
            while sum(map(len, log)) > _LOG_BYTES and len(log) > 1:
                log.popleft()
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)  # a close alone would not wake `_send`, which keeps it open while it waits
    sink.close()


def _read(stream: Any, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = stream.recv(count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


# -- GPUs and runtimes ------------------------------------------------------------------------------------------------


def _choose_gpu_access(facts: EngineFacts, wanted: GpuAccess | Literal["auto"]) -> GpuAccess:
    if wanted != "auto":
        return wanted  # `docker info` does not show every way that works
    if facts.gpu_access:
        return facts.gpu_access[0]
    raise EngineError(
        "the engine gives containers no GPU: install the NVIDIA container toolkit "
        "(nvidia-ctk runtime configure --runtime=docker), or use --sandbox process"
    )


def _not_enforced(facts: EngineFacts) -> tuple[str, ...]:
    controls = {
        "memory limit": facts.memory_limit, "swap limit": facts.swap_limit, "process limit": facts.pids_limit,
        "CPU limit": facts.cpu_quota, "the engine's seccomp profile": facts.seccomp,
    }  # fmt: skip
    return tuple(
        f"{control}: the engine does not enforce it (see kbenv doctor)" for control, had in controls.items() if not had
    )


def _check_runtime(facts: EngineFacts, runtime: str | None) -> None:
    if runtime is not None and runtime not in facts.runtimes:
        raise EngineError(f"runtime must be one that the engine knows ({', '.join(facts.runtimes)}); found {runtime!r}")


def _gpu_environment(access: GpuAccess | None, image: dict[str, str]) -> dict[str, str]:
    if access is None:
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    if access == "devices":
        return {"LD_LIBRARY_PATH": ":".join(filter(None, (_DRIVER, image.get("LD_LIBRARY_PATH"))))}
    return {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def _device_options(gpu: str) -> dict[str, Any]:
    """One GPU's device files, and the driver's libraries of this machine."""
    gpu = gpu if gpu.isdecimal() else number_of(gpu)
    if not gpu.isdecimal():
        raise EngineError(f"device files go by a GPU's number; found {gpu!r}: set CUDA_VISIBLE_DEVICES to numbers")
    names = [name for name in (f"nvidia{gpu}", *_DEVICES) if os.path.exists(f"/dev/{name}")]
    libraries = {}
    for folder in [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_DRIVER_FOLDERS]:
        if folder and os.path.exists(os.path.join(folder, "libcuda.so.1")):
            for pattern in _DRIVER_LIBRARIES:
                for path in Path(folder).glob(pattern):
                    libraries[str(path.resolve())] = {"bind": f"{_DRIVER}/{path.name}", "mode": "ro"}
            break
    else:
        raise EngineError("the driver's libcuda.so.1 was not found here: name its folder in LD_LIBRARY_PATH")
    return {"devices": [f"/dev/{name}:/dev/{name}:rw" for name in names], "volumes": libraries}
