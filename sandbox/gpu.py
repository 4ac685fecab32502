"""The GPUs of this machine by number and UUID, whatever CUDA_VISIBLE_DEVICES says; no CUDA context is made.

Numbers are the driver's (`nvidia-smi`, PCI order), which is how a judge's environment orders them too.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from kbenv.errors import UsageError

UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")
"""A GPU's UUID, which may be cut short where it stays unique, or that of an instance of one."""
ALL = "all"
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader")
_QUERY_S = 60.0


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str


def list_gpus() -> list[Gpu]:
    """Every GPU that the driver shows here, in its order; none without a driver that answers."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",", 2)] for line in done.stdout.splitlines()]
    return [Gpu(int(row[0]), row[1], row[2]) for row in rows if len(row) == 3 and row[0].isdecimal()]


def resolve_devices(devices: Sequence[str]) -> list[str]:
    """Names of devices as `Evaluator` takes them, each meaning one device however CUDA_VISIBLE_DEVICES is set.

    Args:
        devices: "cpu", "cuda:N" (the machine's N-th GPU, as nvidia-smi counts), a UUID ("GPU-..."), or "all" alone.

    Raises:
        UsageError: there is no such device, it is named twice, or numbers cannot be told apart here.
    """
    if not devices:
        raise UsageError("devices must name at least one, such as cpu, cuda:0 or all; found none")
    gpus = list_gpus() if any(device != "cpu" for device in devices) else []
    if list(devices) == [ALL]:
        if not gpus:
            raise UsageError("devices: all means every GPU that nvidia-smi lists, and it lists none; name them, or cpu")
        return [f"cuda:{gpu.uuid}" for gpu in gpus]
    found = [_resolve(device, gpus) for device in devices]
    for index, device in enumerate(found):
        if device != "cpu" and device in found[:index]:
            raise UsageError(f"devices must differ; {devices[index]} is named twice")
    return found


def _resolve(device: str, gpus: Sequence[Gpu]) -> str:
    if device == "cpu":
        return device
    name = device.removeprefix("cuda:")
    if name.startswith("MIG-"):
        return f"cuda:{name}"
    if name.isascii() and name.isdecimal() and device != name:
        matching = [gpu for gpu in gpus if gpu.index == int(name)]
        if not gpus and not os.environ.get("CUDA_VISIBLE_DEVICES"):
            return device  # nothing to mistake it for; whether it is there, its judge will say
    elif UUID.fullmatch(name):
        matching = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
        if not gpus:
            return f"cuda:{name}"
    else:
        raise UsageError(f"a device is cpu, cuda:N, a GPU's UUID (GPU-...), or all alone; found {device!r}")
    if len(matching) == 1:
        return f"cuda:{matching[0].uuid}"
    if not gpus:
        raise UsageError(
            f"device {device}: nvidia-smi does not answer, and CUDA_VISIBLE_DEVICES is set, so that it is not known "
            "which GPU is meant; give UUIDs (GPU-...)"
        )
    have = ", ".join(f"cuda:{gpu.index} ({gpu.uuid})" for gpu in gpus)
    raise UsageError(f"device {device}: this machine has {have}")


def canonical(visible: str) -> str:
    """One name for what a number or a UUID in CUDA_VISIBLE_DEVICES means: two names must not give two locks."""
    gpu = _find(visible)
    return visible if gpu is None else gpu.uuid


def number_of(visible: str) -> str:
    """The driver's number of that GPU, whose device file bears it; the name as it is where it is not known here."""
    gpu = _find(visible)
    return visible if gpu is None else str(gpu.index)


def _find(visible: str) -> Gpu | None:
    if visible.startswith("MIG-"):
        return None
    for gpu in list_gpus():
        if visible == str(gpu.index) or (visible.startswith("GPU-") and gpu.uuid.startswith(visible)):
            return gpu
    return None
