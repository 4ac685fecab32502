"""What PyTorch says of a GPU, said where there is none: for a submission that is loaded to see what it builds.

Flags for compilers depend on the device's compute capability, and many a submission asks whether there is a device
before it builds. Nothing can be computed: what makes a CUDA context fails as ever.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ..wire import Message


def describe_device() -> Message:
    """What `stand_in` needs to know of the first GPU, as JSON."""
    properties: Any = torch.cuda.get_device_properties(0)
    found = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    plain = {name: value for name, value in found.items() if isinstance(value, bool | int | str)}
    return {"properties": plain, "architectures": list(torch.cuda.get_arch_list())}


def stand_in(device: Message) -> None:
    """Lets `torch.cuda` speak of `device` (see `describe_device`) as the one GPU that there is."""
    properties = device["properties"]
    said: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_arch_list": device["architectures"],
        "get_device_name": properties["name"], "get_device_capability": (properties["major"], properties["minor"]),
        "get_device_properties": SimpleNamespace(**properties), "is_bf16_supported": properties["major"] >= 8,
    }  # fmt: skip
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, _value=value, **__: _value)
