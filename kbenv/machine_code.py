"""What a kernel was compiled to: registers, spills, shared memory, kinds of instructions, occupancy. Parsers of text.

`cuobjdump` reads it off the built artefact (a shared library or a cubin), so that nothing of it is the submission's own
word, and it works where the performance counters are refused. The counts are of instructions in the code, not of those
that run: a loop's body counts once. An artefact is a submission's file: the judge has it read in a builder, before
hidden inputs are drawn (`kbenv.sandbox.judge.diagnosis`); `dump` one yourself only where its code may run as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbenv.errors import UsageError
from kbenv.sandbox.runner import machine_code as reading
from kbenv.sandbox.runner.machine_code import find_tool, instruction_kinds, parse_resource_usage, parse_sass
from kbenv.verdict import MachineCode

__all__ = [
    "MULTIPROCESSORS", "KernelCode", "Multiprocessor", "Occupancy", "demangled", "dump", "find_tool",
    "instruction_kinds", "kernels_of", "make_kernels", "occupancies", "occupancy", "parse_resource_usage",
    "parse_sass", "read_kernels", "relevant",
]  # fmt: skip

USUAL_THREADS = (128, 256, 512, 1024)
"""Block sizes that occupancy is given for: the code does not say with which it is launched."""

_COUNTS_RESERVED = 90
"""From this capability on SHARED holds what the system reserves of a block, unless it is zero (seen with CUDA 13)."""


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor of a compute capability holds (CUDA C++ Programming Guide, technical specifications)."""

    warps: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    registers: int = 65536
    shared_unit: int = 128
    shared_reserved: int = 1024
    """Of each block, by the system, from compute capability 8.0 on."""
    register_unit: int = 256
    warp_unit: int = 4


def _table() -> dict[int, Multiprocessor]:
    kib = 1024
    old = {"shared_unit": 256, "shared_reserved": 0}
    return {
        70: Multiprocessor(64, 32, 96 * kib, 96 * kib, **old),
        75: Multiprocessor(32, 16, 64 * kib, 64 * kib, **old),
        80: Multiprocessor(64, 32, 164 * kib, 163 * kib),
        86: Multiprocessor(48, 16, 100 * kib, 99 * kib),
        87: Multiprocessor(48, 16, 164 * kib, 163 * kib),
        89: Multiprocessor(48, 24, 100 * kib, 99 * kib),
        90: Multiprocessor(64, 32, 228 * kib, 227 * kib),
        100: Multiprocessor(64, 32, 228 * kib, 227 * kib),
        103: Multiprocessor(64, 32, 228 * kib, 227 * kib),
        120: Multiprocessor(48, 24, 100 * kib, 99 * kib),
        121: Multiprocessor(48, 24, 100 * kib, 99 * kib),
    }


MULTIPROCESSORS: Mapping[int, Multiprocessor] = _table()
"""By compute capability, ten times it (9.0 is 90)."""


@dataclass(frozen=True)
class Occupancy:
    """Warps that a multiprocessor holds at once, at a block size. `limit`: what allows no more of them."""

    threads: int
    blocks: int
    warps: int
    share: float
    limit: str


@dataclass(frozen=True)
class KernelCode:
    """One kernel's machine code.

    Attributes:
        name: as in the object file (mangled).
        capability: ten times the compute capability it was compiled for.
        registers: of a thread.
        stack_bytes: of a thread, in local memory, which is device memory: spills and arrays that are indexed.
        shared_bytes: of a block, static; what a launch adds is not known here.
        instructions: how many there are by kind, and in all ("all"); kinds as in `instruction_kinds()`.
        occupancy: for `USUAL_THREADS`, those that can be launched; empty for an unknown capability.
        self_reported: read in the submission's own process, which could forge it.
    """

    name: str
    capability: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    instructions: Mapping[str, int]
    occupancy: tuple[Occupancy, ...] = ()
    self_reported: bool = False

    @property
    def spills(self) -> bool:
        """Whether it keeps values in local memory."""
        return self.instructions.get("local", 0) > 0

    @property
    def short_name(self) -> str:
        """The function's own name, without namespaces, template arguments and parameters."""
        return demangled(self.name)


def read_kernels(usage_text: str, sass_text: str) -> tuple[KernelCode, ...]:
    """The kernels of an artefact, from the two dumps; one that the second lacks has no instructions."""
    return make_kernels(reading.read_rows(usage_text, sass_text))


def make_kernels(rows: Iterable[Mapping[str, Any]]) -> tuple[KernelCode, ...]:
    """Kernels with what rows of a dump (`kbenv.sandbox.runner.machine_code.read_rows`) do not say: occupancy."""
    kernels = []
    for row in rows:
        capability, shared = row["capability"], row["shared_bytes"]
        if capability >= _COUNTS_RESERVED and shared:
            shared = max(0, shared - MULTIPROCESSORS.get(capability, MULTIPROCESSORS[90]).shared_reserved)
        kernels.append(_kernel(**{**row, "shared_bytes": shared}))
    return tuple(kernels)


def kernels_of(code: Iterable[MachineCode]) -> tuple[KernelCode, ...]:
    """The kernels that a verdict tells of."""
    return tuple(_kernel(**item.model_dump()) for item in code)


def _kernel(**fields: Any) -> KernelCode:
    found = occupancies(fields["capability"], fields["registers"], fields["shared_bytes"])
    return KernelCode(**fields, occupancy=tuple(found))


def occupancies(capability: int, registers: int, shared_bytes: int) -> Iterator[Occupancy]:
    """The occupancy at each of `USUAL_THREADS` at which a block fits at all."""
    if capability in MULTIPROCESSORS:
        for threads in USUAL_THREADS:
            found = occupancy(capability, threads, registers, shared_bytes)
            if found.blocks:
                yield found


def occupancy(capability: int, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Blocks and warps that a multiprocessor holds, as NVIDIA's occupancy calculator has it.

    Args:
        capability: ten times the compute capability; one of `MULTIPROCESSORS`.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.

    Raises:
        UsageError: an unknown capability, or no number of threads that a block can have.
    """
    if capability not in MULTIPROCESSORS:
        known = ", ".join(map(str, MULTIPROCESSORS))
        raise UsageError(f"the compute capability must be one of {known} (ten times it); found {capability}")
    if not 1 <= threads <= 1024:
        raise UsageError(f"a block has 1 to 1024 threads; found {threads}")
    device = MULTIPROCESSORS[capability]
    warps = -(-threads // 32)
    limits = {"warps": device.warps // warps, "blocks": device.blocks}
    if registers:
        of_warp = -(-registers * 32 // device.register_unit) * device.register_unit
        held = device.registers // of_warp // device.warp_unit * device.warp_unit
        limits["registers"] = held // warps
    if shared_bytes > device.shared_bytes_per_block:
        limits["shared memory"] = 0
    else:
        of_block = -(-(shared_bytes + device.shared_reserved) // device.shared_unit) * device.shared_unit
        if of_block:
            limits["shared memory"] = device.shared_bytes // of_block
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(threads, blocks, blocks * warps, blocks * warps / device.warps, limit)


def dump(artefact: Path, tool: str | None = None) -> tuple[KernelCode, ...]:
    """The kernels in a built artefact (.so, .o, .cubin), by `cuobjdump`.

    Raises:
        UsageError: there is no cuobjdump, or it cannot read the file.
    """
    try:
        return make_kernels(reading.dump(str(artefact), tool))
    except reading.DumpError as e:
        raise UsageError(str(e)) from e


def demangled(name: str) -> str:
    """The innermost name of an Itanium-mangled function; the name itself where it is not mangled."""
    if not name.startswith("_Z"):
        return name
    nested = name.startswith("_ZN")
    rest, last = name[3 if nested else 2 :], name
    while match := re.match(r"(\d+)", rest):
        end = match.end() + int(match.group())
        last, rest = rest[match.end() : end], rest[end:]
        if not nested:
            break
    return last


def relevant(kernels: Sequence[KernelCode], names: frozenset[str]) -> tuple[KernelCode, ...]:
    """The kernels that a source defines, by name; libraries that were linked in are left out."""
    return tuple(kernel for kernel in kernels if kernel.short_name in names)
