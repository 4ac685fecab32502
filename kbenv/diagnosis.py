"""What a job found out on request (`protocol.diagnostics`), read from the words of NVIDIA's tools. Pure functions.

Of counters and of a bad access every word went through the submission's process: it is bounded and cleaned here, and
its only reader is the submission's author.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kbenv.machine_code import make_kernels
from kbenv.profile import parse_ncu
from kbenv.verdict import Diagnosis, Launch, MachineCode

MOST_LAUNCHES = 64
_WORD_CHARACTERS = 200
_REASON_CHARACTERS = 300
_ACCESS_LINES = 6
_LINE = re.compile(r"^=+ ?(.*)$")
"""compute-sanitizer writes these signs before each line of its own."""
_NOT_AN_ERROR = re.compile(r"COMPUTE-SANITIZER|ERROR SUMMARY|LEAK SUMMARY|Target application|No attachable|Host Frame")
_REFUSED = re.compile(r"^==(?:ERROR|WARNING)== *(.*)$", re.MULTILINE)
_NO_COUNTERS = "Nsight Compute told nothing of any launch"
_NO_ACCESS = "compute-sanitizer saw no bad access in a run of its own"


def read_diagnosis(found: Mapping[str, Any]) -> Diagnosis:
    """A job's answer: rows of machine code, and what the tools said, each with the reason where it holds nothing."""
    missing = dict(found["missing"])
    code = tuple(
        MachineCode(**{name: value for name, value in asdict(kernel).items() if name in MachineCode.model_fields})
        for kernel in make_kernels(found.get("code") or ())
    )
    launches: tuple[Launch, ...] = ()
    access = None
    if "counters" in found:
        launches = read_launches(found["counters"])
        if not launches:
            missing.setdefault("counters", _why_no_counters(found["counters"]))
    if "access" in found:
        access = first_bad_access(found["access"])
        if access is None:
            missing.setdefault("access", _NO_ACCESS)
    return Diagnosis(code=code, counters=launches, access=access, missing=missing)


def read_launches(text: str) -> tuple[Launch, ...]:
    """What `ncu --csv` said of each launch, at most `MOST_LAUNCHES`."""
    return tuple(
        Launch(
            kernel=_clean(item.kernel), block=_clean(item.block), grid=_clean(item.grid),
            values={name: value for name, value in item.values.items() if abs(value) < 1e300},
        )
        for item in parse_ncu(text)[:MOST_LAUNCHES]
    )  # fmt: skip


def first_bad_access(text: str) -> str | None:
    """The first error in what compute-sanitizer said: what it was, in which kernel, by which thread, where.

    Returns:
        At most six lines; None where it reported none.
    """
    found: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        words = _clean(match[1]) if match is not None else ""
        if found and (not words or _NOT_AN_ERROR.search(words) or len(found) == _ACCESS_LINES):
            break
        if words and not _NOT_AN_ERROR.search(words) and (found or _begins_an_error(words)):
            found.append(words)
    return "\n".join(found) or None


def _begins_an_error(words: str) -> bool:
    """Of memcheck's reports the ones about memory; not the API errors that follow from them."""
    return words.startswith(("Invalid ", "Warp Illegal", "Misaligned", "Out-of-range")) or " is out of bounds" in words


def _why_no_counters(text: str) -> str:
    """ncu's own words: that the driver refuses counters to this user, above all."""
    said = [_clean(words) for words in _REFUSED.findall(text)]
    words = next((line for line in said if "ERR_" in line or "ermission" in line), said[-1] if said else "")
    return (f"{_NO_COUNTERS}: {words}" if words else _NO_COUNTERS)[:_REASON_CHARACTERS]


def _clean(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_WORD_CHARACTERS]
