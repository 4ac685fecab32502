"""Which sandbox and which device a request means on this machine, and whether they are to be had."""

from __future__ import annotations

import os

from kbenv.errors import UsageError
from kbenv.sandbox.docker import DockerCarrier, DockerSettings
from kbenv.sandbox.engine import EngineError, EngineFacts, connect, facts_of
from kbenv.sandbox.gpu import UUID
from kbenv.sandbox.host import Sandbox
from kbenv.sandbox.process import ProcessCarrier

SANDBOXES = ("auto", "process", "docker")


def open_sandbox(sandbox: str, device: str, settings: DockerSettings) -> tuple[Sandbox, str, str | None]:
    """The sandbox, its device's name ("cpu" or "cuda:N"), and where "auto" did without Docker, why.

    Raises:
        UsageError: the sandbox or the device that was asked for is not to be had.
    """
    if sandbox not in SANDBOXES:
        raise UsageError(f"sandbox must be one of {', '.join(SANDBOXES)}; found {sandbox!r}")
    parse_device(device)
    note = None
    if sandbox != "process":
        try:
            return *_open_docker(device, settings, keep_gpu=sandbox == "auto"), None
        except EngineError as e:
            if sandbox == "docker":
                raise
            note = f"the process sandbox is used: {e}"
    name, visible = choose_device(device)
    return Sandbox(ProcessCarrier(visible)), name, note


def _open_docker(device: str, settings: DockerSettings, *, keep_gpu: bool) -> tuple[Sandbox, str]:
    client = connect()
    facts = facts_of(client)
    name, gpu = choose_engine_device(device, facts)
    if keep_gpu and device == "auto" and gpu is None and facts.is_local and _visible_gpus():
        raise EngineError("the engine gives containers no GPU")
    return Sandbox(DockerCarrier(client, facts, gpu, settings)), name


def choose_device(device: str) -> tuple[str, str | None]:
    """The device's name ("cpu", "cuda:N" or "cuda:GPU-...") and, for a GPU, what CUDA_VISIBLE_DEVICES must say for it.

    Raises:
        UsageError: no such device here.
    """
    kind, number = parse_device(device)
    if kind == "cpu":
        return "cpu", None
    if isinstance(number, str):
        if not _torch_has_cuda():
            raise UsageError(f"device {device}: PyTorch here is a build without CUDA; use --device cpu or auto")
        return f"cuda:{number}", number
    visible = _visible_gpus()
    if kind == "auto" and not visible:
        return "cpu", None
    if number >= len(visible):
        have = f"{len(visible)} GPU{'s' if len(visible) != 1 else ''}"
        raise UsageError(f"device {device}: this machine has {have} that PyTorch can use; use --device cpu or auto")
    return f"cuda:{number}", visible[number]


def choose_engine_device(device: str, facts: EngineFacts) -> tuple[str, str | None]:
    """The device's name and, for a GPU, its number or UUID on the engine's machine.

    PyTorch need not see it here: the engine may be elsewhere, and CUDA in the image alone.

    Raises:
        EngineError: the engine gives containers no GPU.
    """
    kind, number = parse_device(device)
    if kind == "cpu" or (kind == "auto" and not facts.gpu_access):
        return "cpu", None
    if not facts.gpu_access:
        raise EngineError(f"device {device}: the engine gives containers no GPU; use --device cpu or --sandbox process")
    if isinstance(number, str):
        return f"cuda:{number}", number
    named = _named_gpus() if facts.is_local else []
    if named and number >= len(named):
        raise UsageError(f"device {device}: CUDA_VISIBLE_DEVICES names {len(named)}")
    return f"cuda:{number}", named[number] if named else str(number)


def parse_device(device: str) -> tuple[str, int | str]:
    """Kind ("auto", "cpu" or "cuda") and number or UUID. Raises UsageError."""
    kind, _, index = device.partition(":")
    if device in ("auto", "cpu", "cuda"):
        return device, 0
    if kind == "cuda" and UUID.fullmatch(index):
        return kind, index
    if kind != "cuda" or not (index.isascii() and index.isdecimal()):
        raise UsageError(f"device must be auto, cpu or cuda:N; found {device!r} (by UUID: cuda:GPU-...)")
    return kind, int(index)


def _named_gpus() -> list[str]:
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def _torch_has_cuda() -> bool:
    import torch

    return torch.version.cuda is not None


def _visible_gpus() -> list[str]:
    """Names for CUDA_VISIBLE_DEVICES of the GPUs that PyTorch can use; no CUDA context is made in this process."""
    if not _torch_has_cuda():
        return []
    import torch

    count = torch.cuda.device_count()
    named = _named_gpus()
    return named[:count] if named else [str(number) for number in range(count)]
