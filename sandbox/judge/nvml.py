"""What NVML tells of a device's clock, in the judge's own process: only evidence, and none where it lacks.

By ctypes, since neither PyTorch nor the image brings its bindings: the library is part of the driver.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_SM_CLOCK = 1
_REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip
"""Of nvml.h (nvmlClocksEventReasons): those that hold a busy device down."""


class Clocks:
    """Of the SMs in one job, look by look."""

    def __init__(self, device: str) -> None:
        self._handle = _open() if device == "cuda" else None
        self._mhz: list[int] = []
        self._held_by: set[str] = set()

    def look(self) -> None:
        """Once, right after work: an idle device lowers its clock in time."""
        if self._handle is None:
            return
        nvml, handle = self._handle
        mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(mhz)) == 0:
            self._mhz.append(mhz.value)
        if nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) == 0:
            self._held_by |= {word for bit, word in _REASONS.items() if reasons.value & bit}

    def seen(self) -> dict[str, Any] | None:
        """Lowest and highest, in MHz, and what held them down at any look."""
        if not self._mhz:
            return None
        return {"lowest_mhz": min(self._mhz), "highest_mhz": max(self._mhz), "held_by": sorted(self._held_by)}


@functools.cache
def _open() -> tuple[Any, ctypes.c_void_p] | None:
    """The library and its handle of PyTorch's first device."""
    import torch

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle, uuid = ctypes.c_void_p(), f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        return None
    return nvml, handle
