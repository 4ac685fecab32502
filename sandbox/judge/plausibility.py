"""How fast a call can be at all: the bytes it must move, over what this device moves in a second.

The floor refuses nothing. A call below it passed every check and is credited; it is flagged, and rewards count it no
faster than the floor. What keeps the floor below honest kernels:

- bytes are what the reference was seen to read and write, each once (`runner/cost.py`): workspaces, second passes and
  rows that are never touched are not in it;
- what the caches may hold when a turn begins (the judge has just filled the slots) and still hold when it ends is taken
  off: twice the L2 on a GPU, twice the largest cache on a CPU. Slots that all fit leave no floor, and weights, which
  stay while slots change, count once a turn;
- the bandwidth is the best of copying, reading and writing, and the floor a tenth below what follows from it;
- where the reference itself is faster, the bytes are evidently not all moved, and there is no floor.

Operations over the measured matrix-product rate are a note and no floor: fewer operations (an algebraic rewrite, an
early exit, sparsity) are what a good kernel may be about. A lower precision shows in the same place.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch

from ..wire import Message
from .arm import REFERENCE_S, ArmError
from .slots import copy_slots

if TYPE_CHECKING:
    from .job import Job

_SLACK = 0.9
_REPEATS = 5
_GPU_COPY_BYTES, _GPU_BATCH, _GPU_MATMUL = 256 << 20, 16, 8192
_CPU_COPY_BYTES, _CPU_BATCH, _CPU_MATMUL = 16 << 20, 1, 512
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Rates:
    """Of one device. `bandwidth` in bytes and `rate` in operations a second; `cache_bytes` None where unknown."""

    bandwidth: float
    rate: float
    cache_bytes: int | None


@dataclass(frozen=True)
class Cost:
    """Of one call of the reference: bytes it must move at least once, and operations of its matrix products."""

    input_bytes: int
    weight_bytes: int
    output_bytes: int
    flops: int


def take_rates(job: Job) -> None:
    """Once in a judge's life, before the submission exists: nothing can slow the measurement down for later jobs."""
    try:
        job.rates = measure_rates(job.device, job.protocol["precision"])
    except (torch.OutOfMemoryError, MemoryError):
        job.flags.append("no plausibility floor: too little memory to measure the device's rates")


@functools.cache
def measure_rates(device: str, precision: str) -> Rates:
    """The best of several; on a CPU of one thread, times the processors, since a submission may use them all.

    Raises:
        torch.OutOfMemoryError: no room for 0.8 GB on the GPU.
    """
    if device == "cuda":
        try:
            rates = _measure("cuda", _DTYPES[precision], _GPU_COPY_BYTES, _GPU_BATCH, _GPU_MATMUL)
        finally:
            torch.cuda.empty_cache()  # the slots to come are not PyTorch's
        return Rates(*rates, torch.cuda.get_device_properties(0).L2_cache_size)
    processors = len(os.sched_getaffinity(0))
    bandwidth, rate = _measure("cpu", torch.float32, _CPU_COPY_BYTES, _CPU_BATCH, _CPU_MATMUL)
    return Rates(bandwidth * processors, rate * processors, _largest_cache())


def _measure(device: str, dtype: torch.dtype, copy_bytes: int, batch: int, size: int) -> tuple[float, float]:
    return _measure_bandwidth(device, copy_bytes, batch), _measure_rate(device, dtype, size)


def _measure_bandwidth(device: str, copy_bytes: int, batch: int) -> float:
    source = torch.ones(copy_bytes // 4, device=device)
    target = torch.empty_like(source)
    return max(
        2 * copy_bytes / _best_s(lambda: target.copy_(source), batch, device),
        copy_bytes / _best_s(source.sum, batch, device),
        copy_bytes / _best_s(lambda: target.fill_(2.0), batch, device),
    )


def _measure_rate(device: str, dtype: torch.dtype, size: int) -> float:
    """With TF32, which a submission may use."""
    a, b, product = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(3))
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return 2 * size**3 / _best_s(lambda: torch.mm(a, b, out=product), 1, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def _best_s(step: Callable[[], object], batch: int, device: str) -> float:
    """Seconds of one step, the best of several batches."""
    best = float("inf")
    for _ in range(1 + _REPEATS):  # the first one warms up, and may be the best all the same
        _synchronize(device)
        started = time.perf_counter()
        for _ in range(batch):
            step()
        _synchronize(device)
        best = min(best, (time.perf_counter() - started) / batch)
    return best


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _largest_cache() -> int | None:
    """Of the first processor, as the kernel says; None where it does not."""
    sizes = []
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            sizes.append(int(file.read().strip().removesuffix("K")) << 10)
    return max(sizes, default=None)


def find_floor(job: Job) -> None:
    """Leaves `plausibility` in the job's result where rates and cost could be measured, and flags what is below it."""
    if job.rates is None:
        return
    try:
        cost = _ask_cost(job)
    except (ArmError, MemoryError) as e:
        job.flags.append(f"no plausibility floor: the reference's cost could not be counted ({e})")
        return
    timing, rates = job.result["timing"], job.rates
    latency_ms, reference_ms = timing["latency_ms"], timing["reference_latency_ms"]
    measurement = timing["measurement"]
    calls = 1 if measurement["single_call_counts"] else measurement["calls_per_turn"]
    floor_ms = byte_floor_ms(cost, rates, calls, reference_ms)
    operations_ms = cost.flops / rates.rate * 1e3
    below = floor_ms is not None and latency_ms < floor_ms
    if below:
        job.flags.append(
            f"faster than the floor: {latency_ms:.4g} ms a call, and to move its bytes takes {floor_ms:.4g} ms at "
            f"{rates.bandwidth / 1e9:.4g} GB/s; rewards count it no faster"
        )
    if latency_ms < _SLACK * operations_ms:
        job.flags.append(
            f"fewer operations than the reference's, or of a lower precision: those take {operations_ms:.4g} ms at "
            f"{rates.rate / 1e12:.4g} TFLOP/s"
        )
    job.result["plausibility"] = asdict(rates) | {
        "floor_ms": floor_ms, "operations_ms": operations_ms, "below_floor": below, "flops": cost.flops,
        "bytes": cost.input_bytes + cost.weight_bytes + cost.output_bytes,
    }  # fmt: skip


def _ask_cost(job: Job) -> Cost:
    arm, slots = job.arm("reference"), job.trusted
    with slots.lent_to(arm):
        copy_slots(job.store.masters, slots.inputs, 0, 1)
        job.synchronize()
        answer = arm.ask("cost", timeout_s=REFERENCE_S)
    return read_cost(answer, len(job.signature.inputs.leaves))


def read_cost(answer: Message, inputs: int) -> Cost:
    """From the reference's answer; the first `inputs` of what it read are inputs, the others weights."""
    reads = answer["reads"]
    return Cost(sum(reads[:inputs]), sum(reads[inputs:]), answer["written"], answer["flops"])


def byte_floor_ms(cost: Cost, rates: Rates, calls: int, reference_ms: float) -> float | None:
    """The least time of one call in a turn of `calls`, by bytes; None where nothing can be said (see above)."""
    if rates.cache_bytes is None:
        return None
    touched = calls * (cost.input_bytes + cost.output_bytes) + cost.weight_bytes
    beyond_caches = touched - 2 * rates.cache_bytes
    if beyond_caches <= 0:
        return None
    floor_ms = _SLACK * beyond_caches / calls / rates.bandwidth * 1e3
    return floor_ms if floor_ms < reference_ms else None
