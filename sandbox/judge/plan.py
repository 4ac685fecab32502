"""The memory plan of a job: how many slots, and whether judge and runners can hold everything on the device at once.

Per slot the device holds the inputs three times (the reference's, the submission's, the judge's masters) and the
outputs five times (the reference's, the submission's, expected, snapshot, and a kept snapshot where the reference has
to run again). Where even one slot does not fit that way
the plan is `exclusive`: slots are lent to one runner at a time and the judge's own copies lie in host memory.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

CONTEXT_BYTES = 700 << 20
"""A CUDA context with PyTorch's libraries, at most (0.5 GB measured on an H200). One may still come when the plan is
made: that of a variant, or of a runner whose predecessor is not quite gone."""
_CHUNK_BYTES = 1 << 30
_LONGEST_ROTATION_MS = 100.0
"""Slots are not added for a cold L2 cache beyond this much work: a call this long hardly feels its cache."""
_TURN_BYTES, _LEAST_TURN_MS = 4 << 30, 1.0
"""Inputs and outputs of a turn, at most, as long as its calls last so long: more is copied about than it tells."""
_TURN_SHARE = 0.4
"""Of the free memory, at most, for slots beyond the first: filling and snapshotting more costs more than it tells."""


class DoesNotFitError(MemoryError):
    """Not even one slot fits; the message says need and have."""


@dataclass(frozen=True)
class Plan:
    """How many slots there are, and how many calls (one a slot) a turn has; fewer calls than slots rotate."""

    slots: int
    calls: int
    exclusive: bool
    l2_cold: bool
    need_bytes: int
    have_bytes: int
    room_for_contexts: int
    """How many processes may hold a CUDA context beside what the plan needs."""
    runner_bytes: int
    """What one runner takes beyond its slots: as much as the reference, and a context."""


@dataclass(frozen=True)
class Demand:
    """What the plan is made from. `work_bytes`: peak of one runner beyond its slots (weights, workspace, output)."""

    device: str
    input_bytes: int
    output_bytes: int
    work_bytes: int
    weight_bytes: int
    forward_ms: float
    free_bytes: int
    l2_bytes: int


def make_plan(demand: Demand, *, target_turn_ms: float, max_slots: int, cold_l2_multiple: float) -> Plan:
    """As many slots as a turn should have calls, or as a cold L2 cache needs, as far as memory allows.

    Raises:
        DoesNotFitError: one slot does not fit even exclusively.
    """
    per_slot = 3 * demand.input_bytes + 5 * demand.output_bytes
    context = CONTEXT_BYTES if demand.device == "cuda" else 0
    one = demand.work_bytes + context
    shared_need = 2 * demand.work_bytes + context + _CHUNK_BYTES
    room = int(demand.free_bytes * 0.95) - shared_need
    both = demand.input_bytes + demand.output_bytes
    calls = math.ceil(target_turn_ms / demand.forward_ms)
    if demand.device == "cuda":
        calls = min(calls, max(_TURN_BYTES // both, math.ceil(_LEAST_TURN_MS / demand.forward_ms), 1))
    for_cold_l2 = math.ceil(cold_l2_multiple * demand.l2_bytes / both)
    wanted = max(calls, min(for_cold_l2, math.ceil(_LONGEST_ROTATION_MS / demand.forward_ms)))
    slots = min(wanted, max_slots, max(1, int(_TURN_SHARE * demand.free_bytes) // per_slot), room // per_slot)
    cold = slots >= 1 and demand.l2_bytes > 0 and slots * both >= cold_l2_multiple * demand.l2_bytes
    if slots >= 1:
        need = shared_need + slots * per_slot
        # A runner that is being replaced holds its memory for a while beside its successor's.
        left = room - slots * per_slot - demand.work_bytes
        return Plan(slots, min(slots, calls), False, cold, need, demand.free_bytes, max(0, left) // CONTEXT_BYTES, one)
    need = both + demand.work_bytes + demand.weight_bytes + context + _CHUNK_BYTES
    if need > demand.free_bytes or demand.device == "cpu":
        raise DoesNotFitError(
            f"one slot needs {need / 2**30:.2f} GiB of {demand.device} memory (inputs "
            f"{demand.input_bytes / 2**30:.2f}, outputs {demand.output_bytes / 2**30:.2f}, the reference's own "
            f"{demand.work_bytes / 2**30:.2f}); have {demand.free_bytes / 2**30:.2f} GiB free; use a larger device or "
            "a smaller problem"
        )
    cold = demand.l2_bytes > 0 and both >= cold_l2_multiple * demand.l2_bytes
    return Plan(1, 1, True, cold, need, demand.free_bytes, 0, one)


def free_memory(device: str) -> tuple[int, int]:
    """Free bytes of the device and bytes of its L2 cache (0 on the CPU)."""
    if device == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0], torch.cuda.get_device_properties(0).L2_cache_size
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10, 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"), 0
