"""MultiKernelBench: `reference/<category>/<name>.py` is the problem "multikernelbench/<category>/<name>".

Most are plain KernelBench files. The tasks for NPUs have `get_input_groups` and a file of JSON lines beside them, one a
case: the source made here holds those lines, and draws the group of the case that is in place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path

from pydantic import BaseModel

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.loaders.reduction import float_types, precision_of, written_parameters
from kbenv.problems.problem import Case, Contract, Origin, Problem

PREFIX = "multikernelbench/"
FORMAT = "MultiKernelBench: reference/<category>/<name>.py, with get_inputs, or get_input_groups and <name>.json"

_URL = "https://github.com/wzzll123/MultiKernelBench"
_GROUPS = "get_input_groups"
_TIMED_ELEMENTS = 2**28  # a case of more takes minutes to draw
_SHOWN_CASES = 40
_MACHINERY = '''
import io

CASE = 0
_LINES = [
{lines}
]


def open(path, *_, **__):
    """The lines of the case in place. Groups with odd numbers are drawn in another way, hence the line before."""
    return io.StringIO("\\n".join(_LINES[CASE - CASE % 2 : CASE + 1]))


def get_inputs():
    return get_input_groups()[-1]
'''


class _Input(BaseModel):
    shape: list[int] | None = None
    dtype: str = ""


class _Line(BaseModel):
    inputs: list[_Input]


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set."""
    return (folder / "dataset.py").is_file() and next(folder.glob("reference/*/*.py"), None) is not None


def find(folder: Path) -> Mapping[str, Path]:
    """Each problem's file by its id."""
    return {
        f"{PREFIX}{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("reference/*/[!_]*.py"))
    }  # fmt: skip


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file, and its cases' file where there is one. Raises as `file.read`."""
    text = file.read_text(path)
    category = path.parent.name
    level = re.fullmatch(r"npukernelbench_level(\d+)", category)
    cases: tuple[Case, ...] = ()
    contract, shown = Contract(), None
    if f"def {_GROUPS}(" in text and "def get_inputs(" not in text:
        lines = _case_lines(path.with_suffix(".json"))
        cases = tuple(_cases(lines))
        shown, text = (
            _with_cases(text, lines),
            text.rstrip() + "\n\n" + _MACHINERY.format(lines="\n".join(f"    {x!r}," for x in lines)),
        )
    elif types := float_types(text) - {"float32"}:
        contract = Contract(dtype=precision_of(types))
    contract = replace(contract, in_place=written_parameters(file.parse(text, path)))
    return file.from_source(
        text, path=path, id=id, name=path.stem, level=int(level[1]) if level else None, category=category,
        cases=cases if len(cases) > 1 else (), contract=contract, shown=shown,
        origin=Origin("multikernelbench", _URL, "MIT", version=commit_of(path, "reference/*/*.py")),
    )  # fmt: skip


def _with_cases(text: str, lines: list[str]) -> str:
    """What a prompt shows: `get_input_groups` reads a file that nobody has there."""
    told = [f"#   {index}: {line}" for index, line in enumerate(lines[:_SHOWN_CASES])]
    if len(lines) > _SHOWN_CASES:
        told.append(f"#   and {len(lines) - _SHOWN_CASES} more")
    return "\n".join([text.rstrip(), "", "", "# What that file holds, a line for each value of CASE:", *told, ""])


def _case_lines(path: Path) -> list[str]:
    lines = [line for line in file.read_text(path).split("\n") if line.strip()]
    if not lines:
        raise ProblemNotFoundError(f"{path}: expected JSON lines with `inputs`, one a case; found none")
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise ProblemNotFoundError(f"{path}: line {number} is not valid JSON: {e}") from e
        file.validate(_Line, data, path, f"JSON lines with `inputs`; line {number}")
    return lines


def _cases(lines: list[str]) -> Iterator[Case]:
    """One a line; the largest that can be drawn in good time is timed, the others are checked."""
    inputs = [_Line.model_validate_json(line).inputs for line in lines]
    tensors = [[item for item in items if isinstance(item.shape, list)] for items in inputs]
    sizes = [sum(prod(item.shape or ()) for item in items) for items in tensors]
    timed = max((size, index) for index, size in enumerate(sizes) if size <= max(_TIMED_ELEMENTS, min(sizes)))[1]
    for index, items in enumerate(tensors):
        floats = {item.dtype for item in items if "float" in item.dtype}
        dtype = precision_of(floats) if floats else None
        yield Case(str(index), "perf" if index == timed else "public", {"CASE": index}, dtype)
