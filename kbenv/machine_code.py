"""What a kernel was compiled to: registers, spills, shared memory, kinds of instructions, occupancy. Parsers of text.

`cuobjdump` reads it off the built artefact (a shared library or a cubin), so that nothing of it is the submission's own
word, and it works where the performance counters are refused. The counts are of instructions in the code, not of those
that run: a loop's body counts once. An artefact is a submission's file: `dump` it where its code may run as well, and
before it has seen hidden inputs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kbenv.errors import UsageError

TOOL = "cuobjdump"
DUMP_S = 60.0
USUAL_THREADS = (128, 256, 512, 1024)
"""Block sizes that occupancy is given for: the code does not say with which it is launched."""

_KINDS: dict[str, str] = {
    "tensor_core": r"(?:[HIDBQO]MMA|[HIQB]GMMA|UTC\w*MMA)\b",
    "async_copy": r"(?:LDGSTS|UBLKCP|UTMALDG|UTMASTG|UTMAREDG)\b",
    "global_load": r"LDG\b",
    "global_load_128": r"LDG\b\S*\.(?:128|256)\b",
    "global_store": r"STG\b",
    "global_store_128": r"STG\b\S*\.(?:128|256)\b",
    "shared_load": r"(?:LDS|LDSM)\b",
    "shared_store": r"(?:STS|STSM)\b",
    "local": r"(?:LDL|STL)\b",
    "atomic": r"(?:ATOM|ATOMG|ATOMS|RED|REDG|REDS)\b",
    "shuffle": r"SHFL\b",
    "barrier": r"(?:BAR|WARPSYNC|SYNCS)\b",
    "fp32": r"F(?:FMA|ADD|MUL)2?\b",
    "fp64": r"D(?:FMA|ADD|MUL)\b",
    "special_function": r"MUFU\b",
}
"""Opcodes of NVIDIA's instruction set reference ("CUDA Binary Utilities"), Volta to Blackwell, by kind."""
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_ARCH = re.compile(r"^\s*(?:arch = |code for )sm_(\d+)[af]?\s*$", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*Function\s*:?\s+([^\s:]+)\s*:?\s*$", re.MULTILINE)
_COUNTS_RESERVED = 90
"""From this capability on SHARED holds what the system reserves of a block, unless it is zero (seen with CUDA 13)."""
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


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
    """

    name: str
    capability: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    instructions: Mapping[str, int]
    occupancy: tuple[Occupancy, ...] = ()

    @property
    def spills(self) -> bool:
        """Whether it keeps values in local memory."""
        return self.instructions.get("local", 0) > 0

    @property
    def short_name(self) -> str:
        """The function's own name, without namespaces, template arguments and parameters."""
        return demangled(self.name)


def instruction_kinds() -> tuple[str, ...]:
    """The kinds that instructions are counted by."""
    return tuple(_KINDS)


def parse_resource_usage(text: str) -> dict[tuple[int, str], dict[str, int]]:
    """What `cuobjdump -res-usage` prints: REG, STACK, SHARED and LOCAL by capability and function.

    Of a bare cubin it does not say the capability, which is 0 here.
    """
    usages = {}
    for capability, name, body in _functions(text):
        numbers = {key: int(value) for key, value in _USAGE.findall(body.split("Function", 1)[0])}
        if "REG" in numbers:
            usages[capability, name] = numbers
    return usages


def parse_sass(text: str) -> dict[tuple[int, str], dict[str, int]]:
    """What `cuobjdump -sass` prints: counts of instructions by kind, and "all", by capability and function."""
    mixes = {}
    for capability, name, body in _functions(text):
        opcodes = Counter(_INSTRUCTION.findall(body))
        mix = {"all": opcodes.total()}
        for kind, pattern in _PATTERNS.items():
            mix[kind] = sum(count for opcode, count in opcodes.items() if pattern.match(opcode))
        if mix["all"]:
            mixes[capability, name] = mix
    return mixes


def read_kernels(usage_text: str, sass_text: str) -> tuple[KernelCode, ...]:
    """The kernels of an artefact, from the two dumps; one that the second lacks has no instructions."""
    usages, mixes = parse_resource_usage(usage_text), parse_sass(sass_text)
    kernels = []
    for (named, name), usage in usages.items():
        capability = named or next((of_code for of_code, other in mixes if other == name), 0)
        registers, shared = usage["REG"], usage.get("SHARED", 0)
        if capability >= _COUNTS_RESERVED and shared:
            shared = max(0, shared - MULTIPROCESSORS.get(capability, MULTIPROCESSORS[90]).shared_reserved)
        kernels.append(
            KernelCode(
                name=name,
                capability=capability,
                registers=registers,
                stack_bytes=usage.get("STACK", 0),
                shared_bytes=shared,
                instructions=mixes.get((capability, name), {}),
                occupancy=tuple(occupancies(capability, registers, shared)),
            )
        )
    return tuple(kernels)


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


def find_tool() -> str | None:
    """Where `cuobjdump` is: on the path, in a CUDA toolkit, or among what Triton brings along."""
    places = [shutil.which(TOOL), f"/usr/local/cuda/bin/{TOOL}"]
    triton = find_spec("triton")
    if triton is not None and triton.origin is not None:
        places.append(str(Path(triton.origin).parent / "backends" / "nvidia" / "bin" / TOOL))
    return next((place for place in places if place is not None and Path(place).is_file()), None)


def dump(artefact: Path, tool: str | None = None) -> tuple[KernelCode, ...]:
    """The kernels in a built artefact (.so, .o, .cubin), by `cuobjdump`.

    Raises:
        UsageError: there is no cuobjdump, or it cannot read the file.
    """
    tool = tool or find_tool()
    if tool is None:
        raise UsageError("reading machine code needs cuobjdump: it comes with the CUDA toolkit and with Triton")
    texts = []
    for option in ("-res-usage", "-sass"):
        try:
            done = subprocess.run(
                [tool, option, str(artefact)], capture_output=True, text=True, errors="replace", timeout=DUMP_S
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise UsageError(f"{tool} did not read {artefact}: {e}") from e
        if done.returncode:
            raise UsageError(f"{tool} did not read {artefact}: {' '.join(done.stderr.split())[:300]}")
        texts.append(done.stdout)
    return read_kernels(*texts)


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


def _functions(text: str) -> Iterator[tuple[int, str, str]]:
    """Capability, name and body of each function in a dump."""
    marks = sorted([*_ARCH.finditer(text), *_FUNCTION.finditer(text)], key=lambda match: match.start())
    capability = 0
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    for mark, end in zip(marks, ends, strict=False):
        if mark.re is _ARCH:
            capability = int(mark.group(1))
        else:
            yield capability, mark.group(1), text[mark.end() : end]


def relevant(kernels: Sequence[KernelCode], names: frozenset[str]) -> tuple[KernelCode, ...]:
    """The kernels that a source defines, by name; libraries that were linked in are left out."""
    return tuple(kernel for kernel in kernels if kernel.short_name in names)
