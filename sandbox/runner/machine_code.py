"""Reading machine code with `cuobjdump`: parsers of what it prints, and one row of numbers for each kernel.

Runs where untrusted artefacts may be opened: in a builder, of another user than any submission, or in a submission's
own process, whose answer is then self-reported. What the numbers mean, and occupancy, is `kbenv.machine_code`'s.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from ..wire import Message

TOOL = "cuobjdump"
DUMP_S = 60.0
MOST_KERNELS = 64
_MOST_FILES = 32
_MOST_TEXT = 64 << 20
"""Bytes of one dump that are looked at: a library of templates can be large."""
_NAME_CHARACTERS = 400
_SCRATCH, _EXTENSIONS = "HOME", "TORCH_EXTENSIONS_DIR"
"""Folders of a runner, by environment variable: its own, and within it that of PyTorch's extensions."""
_ARTEFACTS = ("cubin", "so")

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
_FOLDERS = re.compile(r"(?<=')/\S*/")
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


class DumpError(Exception):
    """There is no `cuobjdump`, or it cannot read the file."""


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


def read_rows(usage_text: str, sass_text: str) -> list[Message]:
    """A row for each kernel of an artefact, from the two dumps; one that the second lacks has no instructions.

    Returns:
        name (mangled), capability (ten times the compute capability), registers (of a thread), stack_bytes (of a
        thread), shared_bytes (of a block, as the dump has it), instructions (by kind, and "all").
    """
    usages, mixes = parse_resource_usage(usage_text), parse_sass(sass_text)
    rows: list[Message] = []
    for (named, name), usage in usages.items():
        capability = named or next((of_code for of_code, other in mixes if other == name), 0)
        rows.append({
            "name": name, "capability": capability, "registers": usage["REG"], "stack_bytes": usage.get("STACK", 0),
            "shared_bytes": usage.get("SHARED", 0), "instructions": mixes.get((capability, name), {}),
        })  # fmt: skip
    return rows


def find_tool() -> str | None:
    """Where `cuobjdump` is: on the path, in a CUDA toolkit, or among what Triton brings along."""
    places = [shutil.which(TOOL), f"/usr/local/cuda/bin/{TOOL}"]
    triton = find_spec("triton")
    if triton is not None and triton.origin is not None:
        places.append(os.path.join(os.path.dirname(triton.origin), "backends", "nvidia", "bin", TOOL))
    return next((place for place in places if place is not None and os.path.isfile(place)), None)


def dump(path: str, tool: str | None = None, *, inherited: Sequence[int] = ()) -> list[Message]:
    """The kernels in a built artefact (.so, .o, .cubin), as `read_rows` has them.

    Args:
        inherited: descriptors that the tool must have, for a `path` below /proc/self/fd.

    Raises:
        DumpError: there is no cuobjdump, or it cannot read the file.
    """
    tool = tool or find_tool()
    if tool is None:
        raise DumpError("reading machine code needs cuobjdump: it comes with the CUDA toolkit and with Triton")
    texts = []
    for option in ("-res-usage", "-sass"):
        try:
            done = subprocess.run([tool, option, path], capture_output=True, timeout=DUMP_S, pass_fds=inherited)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise DumpError(f"{TOOL} did not read {os.path.basename(path)}: {e}") from e
        if done.returncode:
            said = _FOLDERS.sub("", " ".join(done.stderr.decode(errors="replace").split()))[:300]
            raise DumpError(f"{TOOL} did not read {os.path.basename(path)}: {said}")
        texts.append(done.stdout[:_MOST_TEXT].decode(errors="replace"))
    return read_rows(*texts)


def dump_caches(*, with_built: bool) -> list[Message]:
    """The kernels that this process's compilers have left in its folder (Triton's caches, libraries of nvcc's), the
    newest files first.

    Args:
        with_built: also libraries of PyTorch's extensions, where the judge has not built them.

    Raises:
        DumpError: as `dump`, where nothing could be read.
    """
    scratch = glob.escape(os.environ[_SCRATCH])
    files = {path for suffix in _ARTEFACTS for path in glob.glob(f"{scratch}/**/*.{suffix}", recursive=True)}
    if not with_built:
        files = {path for path in files if not path.startswith(os.environ[_EXTENSIONS] + os.sep)}
    rows: list[Message] = []
    failed: DumpError | None = None
    for path in sorted(files, key=os.path.getmtime, reverse=True)[:_MOST_FILES]:
        try:
            rows += dump(path)
        except DumpError as e:
            failed = failed or e
    if failed is not None and not rows:
        raise failed
    return rows[:MOST_KERNELS]


def checked(rows: object) -> list[Message] | None:
    """Rows that a runner sent, with their own fields alone; None where they are of another form."""
    if not isinstance(rows, list) or len(rows) > MOST_KERNELS:
        return None
    numbers = ("capability", "registers", "stack_bytes", "shared_bytes")
    read: list[Message] = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            return None
        mix = row.get("instructions")
        if not isinstance(mix, dict) or not mix.keys() <= {"all", *_KINDS}:
            return None
        values = [*(row.get(key) for key in numbers), *mix.values()]
        if not all(type(value) is int and 0 <= value < 1 << 40 for value in values):
            return None
        name = "".join(character for character in row["name"] if character.isprintable())[:_NAME_CHARACTERS]
        read.append({"name": name, "instructions": mix} | {key: row[key] for key in numbers})
    return read


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
