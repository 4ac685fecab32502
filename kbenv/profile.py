"""Profiler feedback: what ran, how near it comes to the device's measured ceilings, and what limits it. Pure functions.

All of it is in the verdict, each part optional: `provenance` (kernels and their shares), `plausibility` (the ceilings),
and of `diagnosis` the machine code (`kbenv.machine_code`) and Nsight Compute's counters, as `ncu --csv` prints them.

Nothing is told of a verdict that is not right: what ran then ran on inputs that were hidden. Of a right one, names of
kernels that are not in the source, and exact counts, are not told either: a submission, which has seen hidden inputs,
could speak to its author through them. Shares in whole percent, which of its kernels ran, and how often up to 16,
remain: some bits of each.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kbenv.feedback import QUOTE_PREFIX
from kbenv.machine_code import KernelCode, demangled, kernels_of
from kbenv.prompts import render
from kbenv.provenance import OUTSIDE, defined_kernels
from kbenv.sandbox.runner.tool import NCU_METRICS
from kbenv.verdict import Plausibility, Provenance, Status, Verdict

MOST_KERNELS = 8
MOST_LAUNCHES = 16
"""From there on launches read "more than 16"."""
LAUNCH_BOUND_MS = 0.02
_BUSY, _IDLE = 80.0, 60.0
"""Percent of a peak from which on a resource is the limit, and below which none is (Nsight Compute's own guide)."""
_WORDS = (
    "layer_norm", "group_norm", "batch_norm", "rms_norm", "log_softmax", "softmax", "attention", "gemm", "nvjet",
    "fprop", "conv", "elementwise", "reduce", "addmm", "bmm", "matmul", "linear", "copy", "memcpy", "memset", "fill",
    "cat", "index", "gather", "scatter", "sort", "gelu", "silu", "relu", "sigmoid", "tanh", "sqrt", "exp", "pow",
    "clamp", "mul", "add", "sub", "div", "mean", "sum", "max", "min", "norm", "pool", "pad", "mm",
)  # fmt: skip
"""Of kernels that are not the source's the first of these is told: their names may be forged, too."""
_CALLS = re.compile(r"\bin (\d+) calls? of forward")


# -- the roof ---------------------------------------------------------------------------------------------------------

Bound = Literal["memory", "compute", "latency", "overhead"]


@dataclass(frozen=True)
class Roof:
    """One call against the ceilings that the judge measured on the same device.

    Attributes:
        bound: what the call is limited by, as far as the ceilings tell: "memory" or "compute" (at least 60% of that
            ceiling), "latency" (it is so short that launching decides), "overhead" (far from both: bytes are moved
            more than once, work is done twice, or the device waits).
        wants: the ceiling that the problem itself is nearer to.
        bandwidth, rate: bytes and operations per second, as needed by the reference, over the time of a call.
        bandwidth_share, rate_share: of the ceilings; None where there are no such operations.
        best_ms: the least time of a call by the nearer ceiling.
    """

    latency_ms: float
    bound: Bound
    wants: Literal["memory", "compute"]
    bandwidth: float
    bandwidth_share: float
    rate: float
    rate_share: float | None
    best_ms: float
    bytes: int
    flops: int


def measure_roof(verdict: Verdict) -> Roof | None:
    """The roof of a timed verdict; None without a latency or ceilings."""
    ceiling, latency_ms = verdict.plausibility, verdict.latency_ms
    if ceiling is None or latency_ms is None or latency_ms <= 0 or ceiling.bandwidth <= 0:
        return None
    return roof_of(ceiling, latency_ms)


def roof_of(ceiling: Plausibility, latency_ms: float) -> Roof:
    """The roof of a call that took `latency_ms`."""
    memory_ms = ceiling.bytes / ceiling.bandwidth * 1e3
    wants: Literal["memory", "compute"] = "compute" if ceiling.operations_ms > memory_ms else "memory"
    best_ms = max(memory_ms, ceiling.operations_ms)
    near = best_ms >= _IDLE / 100 * latency_ms
    short = latency_ms < LAUNCH_BOUND_MS
    return Roof(
        latency_ms=latency_ms,
        bound=wants if near else "latency" if short else "overhead",
        wants=wants,
        bandwidth=ceiling.bytes / latency_ms * 1e3,
        bandwidth_share=memory_ms / latency_ms,
        rate=ceiling.flops / latency_ms * 1e3,
        rate_share=ceiling.operations_ms / latency_ms if ceiling.flops else None,
        best_ms=best_ms,
        bytes=ceiling.bytes,
        flops=ceiling.flops,
    )


# -- what ran ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelLine:
    """A row of the table: share of the time in whole percent; launches of one call, None for more than are told."""

    name: str
    kind: str
    percent: int
    launches: int | None


def list_kernels(provenance: Provenance, source: str) -> tuple[KernelLine, ...]:
    """The kernels that held at least one percent of the time, the longest first, equal names together.

    A name is told when the source defines it; of a library's kernel or an operator, one word.
    """
    calls = int(match.group(1)) if (match := _CALLS.search(provenance.method)) else 1
    defined = defined_kernels(source)
    rows: dict[tuple[str, str], tuple[float, float]] = {}
    for kernel in provenance.kernels:
        key = (_told_name(kernel.name, kernel.kind, defined), kernel.kind)
        share, launches = rows.get(key, (0.0, 0.0))
        rows[key] = (share + kernel.share, launches + kernel.count / calls)
    ordered = sorted(rows.items(), key=lambda item: -item[1][0])[:MOST_KERNELS]
    return tuple(
        KernelLine(name, kind, round(100 * share), max(1, round(launches)) if launches < MOST_LAUNCHES + 0.5 else None)
        for (name, kind), (share, launches) in ordered
        if share >= 0.005
    )


def _told_name(name: str, kind: str, defined: frozenset[str]) -> str:
    """A name that the submission cannot have put anything into: of the source, or one word of a list of ours."""
    if kind == "custom" and name != OUTSIDE:
        own = sorted(set(re.findall(r"\w+", demangled(name))) & defined, key=len)
        return own[-1] if own else "a kernel whose name is not in the source"
    if name == OUTSIDE:
        return OUTSIDE
    return next((word for word in _WORDS if word in name.lower()), "a kernel")


# -- Nsight Compute ---------------------------------------------------------------------------------------------------

_SECTION_NAMES = {
    "Duration": "duration", "Compute (SM) Throughput": "compute", "Memory Throughput": "memory",
    "DRAM Throughput": "dram", "L2 Cache Throughput": "l2", "L1/TEX Cache Throughput": "l1",
    "Achieved Occupancy": "occupancy", "Theoretical Occupancy": "occupancy_possible", "Waves Per SM": "waves",
    "Registers Per Thread": "registers", "Block Limit Registers": "limit_registers",
    "Block Limit Shared Mem": "limit_shared", "Block Limit Warps": "limit_warps",
}  # fmt: skip
"""The same metrics on ncu's details page."""
_NAMES = {metric: name for name, metric in NCU_METRICS.items()} | _SECTION_NAMES
_SECONDS = {"s": 1.0, "second": 1.0, "ms": 1e-3, "msecond": 1e-3, "us": 1e-6, "usecond": 1e-6, "ns": 1e-9,
            "nsecond": 1e-9}  # fmt: skip
_IDENTITY = ("ID", "Kernel Name", "Block Size", "Grid Size")


@dataclass(frozen=True)
class Counters:
    """One launch as Nsight Compute saw it; `values` by the names of `NCU_METRICS`, duration in milliseconds."""

    kernel: str
    block: str
    grid: str
    values: Mapping[str, float]


def parse_ncu(text: str) -> tuple[Counters, ...]:
    """The launches in what `ncu --csv` printed, its raw page or its details page; lines that are not CSV are left out.

    A metric that ncu does not know on this device, or that is not a number, is absent.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if not rows or "Kernel Name" not in rows[0]:
        return ()
    head = rows[0]
    if "Metric Name" in head:
        return _details(head, rows[1:])
    units, launches = rows[1] if len(rows) > 1 else [], rows[2:]
    return tuple(_launch(head, row, _metrics(head, row, units)) for row in launches if len(row) == len(head))


def _details(head: list[str], rows: list[list[str]]) -> tuple[Counters, ...]:
    """One metric a line: those of one launch have its ID."""
    launches: dict[str, tuple[list[str], dict[str, float]]] = {}
    columns = {name: head.index(name) for name in ("ID", "Metric Name", "Metric Unit", "Metric Value")}
    for row in rows:
        if len(row) != len(head):
            continue
        name, unit, value = (row[columns[key]] for key in ("Metric Name", "Metric Unit", "Metric Value"))
        _, values = launches.setdefault(row[columns["ID"]], (row, {}))
        values.update({key: number for key, number in _metrics([name], [value], [unit]).items() if key not in values})
    return tuple(_launch(head, row, values) for row, values in launches.values())


def _launch(head: list[str], row: list[str], values: Mapping[str, float]) -> Counters:
    _, kernel, block, grid = (row[head.index(name)] if name in head else "" for name in _IDENTITY)
    return Counters(kernel, block, grid, values)


def _metrics(head: list[str], row: list[str], units: list[str]) -> dict[str, float]:
    values = {}
    for metric, text, unit in zip(head, row, units, strict=False):
        name = _NAMES.get(metric)
        if name is None or (unit and name == "memory" and unit != "%"):  # the details page has it in bytes/s as well
            continue
        try:
            number = float(text.replace(",", ""))
        except ValueError:
            continue
        values[name] = number * _SECONDS.get(unit, 1e-9) * 1e3 if name == "duration" else number
    return values


Resource = Literal["DRAM bandwidth", "L2 bandwidth", "L1 and shared memory", "tensor cores", "arithmetic", "latency"]


@dataclass(frozen=True)
class Limit:
    """What limits a launch: the busiest resource and its percentage of the peak, and why, as far as counters tell.

    causes: "occupancy-registers", "occupancy-shared", "occupancy", "small-grid", "uncoalesced", "bank-conflicts",
        "spills", "no-tensor-cores", "waits-for-memory", "waits-at-barriers", "waits-for-shared-memory".
    """

    resource: Resource
    percent: float
    causes: tuple[str, ...]


def find_limit(counters: Counters) -> Limit | None:
    """The limit of a launch; None where ncu gave neither throughput."""
    values = counters.values
    if "compute" not in values or "memory" not in values:
        return None
    compute, memory = values["compute"], values["memory"]
    return Limit(_resource(values), max(compute, memory), tuple(_causes(values)))


def _resource(values: Mapping[str, float]) -> Resource:
    compute, memory = values["compute"], values["memory"]
    if max(compute, memory) < _IDLE:
        return "latency"
    if compute > memory:
        return "tensor cores" if values.get("tensor", 0.0) >= 0.5 * compute else "arithmetic"
    parts: dict[Resource, float] = {
        "DRAM bandwidth": values.get("dram", 0.0),
        "L2 bandwidth": values.get("l2", 0.0),
        "L1 and shared memory": values.get("l1", 0.0),
    }
    return max(parts, key=lambda part: parts[part])


def _causes(values: Mapping[str, float]) -> list[str]:
    busy = max(values["compute"], values["memory"]) >= _BUSY
    causes = []
    if not busy and values.get("waves", 1.0) < 1.0:
        causes.append("small-grid")
    if not busy and values.get("occupancy_possible", 100.0) < 50.0:
        limits = {
            name: values[f"limit_{name}"] for name in ("registers", "shared", "warps") if f"limit_{name}" in values
        }
        least = min(limits, key=lambda name: limits[name], default=None)
        causes.append(f"occupancy-{least}" if least in ("registers", "shared") else "occupancy")
    elif not busy and values.get("occupancy", 100.0) < 0.5 * values.get("occupancy_possible", 100.0):
        causes.append("occupancy")
    requests = values.get("load_requests", 0.0)
    if (
        requests and values.get("load_sectors", 0.0) / requests > 16.5
    ):  # 4 of 32 bytes serve a warp's 4-byte loads, 16 its 16-byte ones
        causes.append("uncoalesced")
    if values.get("bank_conflicts", 0.0) > 0.1 * max(requests, 1.0) and values.get("l1", 0.0) >= 50.0:
        causes.append("bank-conflicts")
    if values.get("local_loads", 0.0) > 0:
        causes.append("spills")
    if values["compute"] >= _IDLE and values["compute"] > values["memory"] and not values.get("tensor", 0.0):
        causes.append("no-tensor-cores")
    if not busy:
        stalls = {name: values[name] for name in ("stall_memory", "stall_barrier", "stall_shared") if name in values}
        worst = max(stalls, key=lambda name: stalls[name], default=None)
        if worst is not None and stalls[worst] >= 1.0:
            causes.append(
                {"stall_memory": "waits-for-memory", "stall_barrier": "waits-at-barriers"}.get(
                    worst, "waits-for-shared-memory"
                )
            )
    return causes


# -- in words ---------------------------------------------------------------------------------------------------------


def render_profile(verdict: Verdict, source: str) -> str | None:
    """What an agent reads about how its right answer ran; None for one that is not right, or that nothing is known of.

    Args:
        verdict: the answer's; its diagnosis is of standard trials, and of what was built before them.
        source: the answer's; names that it does not define are not told.
    """
    if verdict.status not in (Status.PASSED, Status.NO_CUSTOM_KERNEL) or verdict.latency_ms is None:
        return None
    code, counters = code_of(verdict), counters_of(verdict)
    defined = defined_kernels(source)
    kernels = list_kernels(verdict.provenance, source) if verdict.provenance is not None else ()
    newest = sorted(code, key=lambda item: item.capability)  # of code for several devices the one that fits best
    own = {item.short_name: item for item in newest if item.short_name in defined}
    launches = _longest(counters, defined)
    roof = measure_roof(verdict)
    missing = _missing(verdict)
    if not (roof or kernels or own or launches or missing):
        return None
    return render(
        "profile.j2", roof=roof, kernels=kernels, code=list(own.values())[:MOST_KERNELS], launches=launches,
        on_gpu=verdict.hardware is not None and verdict.hardware.device.startswith("cuda"),
        device=verdict.hardware.name if verdict.hardware is not None else "this device",
        most_launches=MOST_LAUNCHES, missing=missing,
    ).strip()  # fmt: skip


def code_of(verdict: Verdict) -> tuple[KernelCode, ...]:
    """The machine code that the verdict's diagnosis tells of."""
    return kernels_of(verdict.diagnosis.code) if verdict.diagnosis is not None else ()


def counters_of(verdict: Verdict) -> tuple[Counters, ...]:
    """The counters that the verdict's diagnosis tells of."""
    launches = verdict.diagnosis.counters if verdict.diagnosis is not None else ()
    return tuple(Counters(item.kernel, item.block, item.grid, item.values) for item in launches)


def _missing(verdict: Verdict) -> list[tuple[str, str]]:
    """Of what was asked for on a GPU: its name, and why it is not told. A submission may have chosen the words."""
    on_gpu = verdict.hardware is not None and verdict.hardware.device.startswith("cuda")
    missing = verdict.diagnosis.missing if verdict.diagnosis is not None and on_gpu else {}
    return [(name, QUOTE_PREFIX + reason) for name, reason in missing.items() if name != "access"]


def _longest(counters: Sequence[Counters], defined: frozenset[str]) -> list[tuple[str, Counters, Limit]]:
    """The longest launch of each kernel, with its limit."""
    best: dict[str, tuple[Counters, Limit]] = {}
    for item in counters:
        words = set(re.findall(r"\w+", item.kernel)) & defined
        name = max(words, key=len) if words else "a library's kernel"
        limit = find_limit(item)
        before = best.get(name)
        if limit and (before is None or item.values.get("duration", 0.0) > before[0].values.get("duration", 0.0)):
            best[name] = (item, limit)
    rows = [(name, item, limit) for name, (item, limit) in best.items()]
    return sorted(rows, key=lambda row: -row[1].values.get("duration", 0.0))[:MOST_KERNELS]
