"""The SM clock is evidence: what NVML does not tell is not there, and nothing fails for it."""

from __future__ import annotations

import ctypes

import pytest

from kbenv.sandbox.judge import nvml


class Library:
    """Answers look after look with a clock, or an error's number, and with reasons."""

    def __init__(self, *looks: tuple[int, int, int]) -> None:
        self.looks = list(looks)

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int, into: object) -> int:
        assert kind == 1
        error, mhz, self.reasons = self.looks.pop(0)
        ctypes.cast(into, ctypes.POINTER(ctypes.c_uint))[0] = mhz
        return error

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object, into: object) -> int:
        ctypes.cast(into, ctypes.POINTER(ctypes.c_ulonglong))[0] = self.reasons
        return 0


def test_lowest_highest_and_all_that_held_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library((0, 1980, 0x1), (0, 1755, 0x4 | 0x20), (999, 5, 0x0), (0, 1900, 0x100))
    monkeypatch.setattr(nvml, "_open", lambda: (library, None))
    clocks = nvml.Clocks("cuda")
    for _ in range(4):
        clocks.look()
    assert clocks.seen() == {"lowest_mhz": 1755, "highest_mhz": 1980, "held_by": ["power cap", "thermal"]}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_where_there_is_no_nvml_nothing_is_said(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_open", lambda: None)
    clocks = nvml.Clocks(device)
    clocks.look()
    assert clocks.seen() is None


@pytest.mark.gpu
def test_a_real_device_has_a_clock() -> None:
    clocks = nvml.Clocks("cuda")
    clocks.look()
    seen = clocks.seen()
    assert seen is not None
    assert 100 < seen["lowest_mhz"] <= seen["highest_mhz"] < 5000
