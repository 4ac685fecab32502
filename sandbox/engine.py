"""The Docker engine that sandboxes run in: where it is, and what it says of itself.

docker-py is an optional dependency, imported when an engine is first asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kbenv.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient

GpuAccess = Literal["nvidia", "cdi", "devices"]
IMAGE = "kbenv-sandbox"
"""The image that `kbenv sandbox build` makes and that sandboxes use unless told otherwise."""
LABEL = "kbenv"
"""On every container of ours; its value names the process that owns it (`kbenv.sandbox.docker.owner_label`)."""
_TIMEOUT_S = 60.0


class EngineError(UsageError):
    """No engine answers, or it lacks what was asked of it; the message says what to do."""


def connect(timeout_s: float = _TIMEOUT_S) -> DockerClient:
    """The engine that DOCKER_HOST names (unix, tcp, ssh), else the local one. Raises EngineError."""
    try:
        import docker
    except ImportError as e:
        raise EngineError("the Docker sandbox needs docker-py: pip install 'kbenv[docker]'") from e
    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except Exception as e:  # docker-py lets through what its transports raise: requests' errors, paramiko's, OSError
        raise _no_engine(e) from e
    return client


def address() -> str:
    """Where an engine is looked for, as DOCKER_HOST writes it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def find_image(client: DockerClient, name: str = IMAGE) -> str | None:
    """The id of the image, None when the engine has none of that name. Never pulls."""
    from docker.errors import ImageNotFound

    try:
        return str(client.images.get(name).id)
    except ImageNotFound:
        return None


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says it enforces.

    Attributes:
        is_local: whether it runs on this machine (a unix socket), so that paths and devices are the same.
        gpu_access: ways to give a container a GPU here, best first: "nvidia" (NVIDIA's runtime), "cdi", "devices".
        cgroup_driver: "systemd", "cgroupfs", or "none" (rootless without cgroup v2 and systemd: no limit holds).
        init: whether it found the binary of `docker run --init`.
        address: what `address` said when it was asked.
        tls: whether TLS carries what is said to it.
    """

    version: str
    cpus: int
    memory_bytes: int
    cgroup_version: str
    memory_limit: bool
    swap_limit: bool
    pids_limit: bool
    seccomp: bool
    rootless: bool
    user_namespaces: bool
    runtimes: tuple[str, ...]
    is_local: bool
    gpu_access: tuple[GpuAccess, ...]
    cgroup_driver: str
    cpu_quota: bool
    init: bool
    address: str
    tls: bool


def facts_of(client: DockerClient) -> EngineFacts:
    """Asks `docker info`. Raises EngineError."""
    try:
        info = client.info()
    except Exception as e:
        raise _no_engine(e) from e
    try:
        return _read_facts(info, client.api.base_url)
    except (ValueError, TypeError, AttributeError, LookupError) as e:
        message = f"what answers at {address()} is no Docker engine (`docker info`: {type(e).__name__}: {reason_of(e)})"
        raise EngineError(f"{message}; set DOCKER_HOST") from e


def _read_facts(info: dict[str, Any], base_url: str) -> EngineFacts:
    security = [str(option) for option in info.get("SecurityOptions") or ()]
    runtimes = tuple(sorted(info.get("Runtimes") or ()))
    is_local = base_url.startswith("http+docker://local")
    access: list[GpuAccess] = ["nvidia"] if "nvidia" in runtimes else []
    if any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in info.get("DiscoveredDevices") or ()):
        access.append("cdi")
    if is_local and os.path.exists("/dev/nvidiactl"):
        access.append("devices")
    return EngineFacts(
        version=str(info["ServerVersion"]),
        cpus=int(info.get("NCPU") or 1),
        memory_bytes=int(info.get("MemTotal") or 0),
        cgroup_version=str(info.get("CgroupVersion") or "1"),
        memory_limit=bool(info.get("MemoryLimit")),
        swap_limit=bool(info.get("SwapLimit")),
        pids_limit=bool(info.get("PidsLimit")),
        seccomp=any(option.startswith("name=seccomp") for option in security),
        rootless=any(option.startswith("name=rootless") for option in security),
        user_namespaces=any(option.startswith("name=userns") for option in security),
        runtimes=runtimes,
        is_local=is_local,
        gpu_access=tuple(access),
        cgroup_driver=str(info.get("CgroupDriver") or "unknown"),
        cpu_quota=bool(info.get("CpuCfsQuota")),
        init=(info.get("InitCommit") or {}).get("ID") != "N/A",  # the engine's word for a binary that it cannot run
        address=address(),
        tls=base_url.startswith("https://"),
    )


def _no_engine(error: Exception) -> EngineError:
    return EngineError(f"no Docker engine answers at {address()} ({reason_of(error)}); start one, or set DOCKER_HOST")


def reason_of(error: BaseException) -> str:
    """On one line: the engine's explanation, the system's own word ("Connection refused"), or the error's message."""
    if explanation := getattr(error, "explanation", None):
        return " ".join(str(explanation).split())[:400]
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and isinstance(cause.strerror, str):
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split())[:200]
