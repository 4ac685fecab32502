"""Reads one file in KernelBench's format: a path of the user's, and the common ground of the other loaders.

The file is read and parsed, never executed.
"""

from __future__ import annotations

import ast
import json
import re
import stat
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from pydantic import BaseModel, ValidationError

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.problem import (
    REQUIRED_NAMES,
    SIZES_NAME,
    Case,
    Comparator,
    Contract,
    Problem,
    constant_assignments,
    defined_names,
    parse_source,
)

MAX_SOURCE_BYTES = 5_000_000
DEVICE_TYPES = ("gpu", "cpu")

_WRITES = re.compile(r"^Writes: ([\d, ]+)\.$", re.MULTILINE)
_EVALUATION = re.compile(r"^Mode: evaluation\.$", re.MULTILINE)
_RANDOM = re.compile(r"^Outputs: random\.$", re.MULTILINE)

_Model = TypeVar("_Model", bound=BaseModel)
Sizes = dict[str, dict[str, int | float]]


def is_path(name: str) -> bool:
    """Whether the problem argument `name` is written as a path rather than as an id."""
    return name.endswith(".py") or name.startswith(("./", "../", "/", "~")) or name in (".", "..")


def path_of(name: str) -> Path:
    """The path that the problem argument `name` means (a leading `~` is the home folder).

    Raises:
        ProblemNotFoundError: there is no such home folder.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as e:
        raise ProblemNotFoundError(f"{name}: {e}; give the path in full") from e


def read(path: Path, *, id: str, name: str, level: int | None, **facts: Any) -> Problem:
    """The problem in the file at `path`; `facts` are further fields of it.

    Raises:
        ProblemNotFoundError: the file cannot be read, is no UTF-8 text of at most `MAX_SOURCE_BYTES`, does not parse,
            lacks one of `REQUIRED_NAMES`, or its `SIZES` is malformed.
    """
    return from_source(read_text(path), path=path, id=id, name=name, level=level, **facts)


def from_source(source: str, *, path: Path, id: str, name: str, level: int | None, **facts: Any) -> Problem:
    """The problem that `source`, found in or made from `path`, defines. Raises as `read`."""
    tree = parse(source, path)
    for case in facts.get("cases", ()):
        _check_case(case, path)
    missing = [wanted for wanted in REQUIRED_NAMES if wanted not in set(defined_names(tree.body))]
    if missing:
        raise ProblemNotFoundError(
            f"{path}: a problem file in KernelBench's format defines {', '.join(REQUIRED_NAMES)}; "
            f"found no {', no '.join(missing)}"
        )
    return Problem(
        id=id,
        name=name,
        level=level,
        source=source,
        sizes=_find_sizes(tree, path),
        path=path,
        **facts,
    )


def read_text(path: Path) -> str:
    """A file's text, its lines ending in "\\n".

    Raises:
        ProblemNotFoundError: it cannot be read, or is no UTF-8 text of at most `MAX_SOURCE_BYTES`.
    """
    content = _read_bytes(path)
    if b"\0" in content:
        raise ProblemNotFoundError(f"{path}: expected Python source, found a binary file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise ProblemNotFoundError(
            f"{path}: expected UTF-8 text, found byte 0x{content[e.start]:02x} at offset {e.start}; save it as UTF-8"
        ) from e
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_python(path: Path) -> str:
    """As `read_text`, and refused where it does not parse."""
    text = read_text(path)
    parse(text, path)
    return text


def _read_bytes(path: Path) -> bytes:
    if "\0" in str(path):
        raise ProblemNotFoundError(f"{str(path)!r} is no path: it holds a NUL character")
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_SOURCE_BYTES:
            return path.read_bytes()
    except FileNotFoundError as e:
        raise ProblemNotFoundError(f"{path}: no such file") from e
    except OSError as e:
        raise ProblemNotFoundError(f"{path}: cannot be read: {e.strerror or e}") from e
    if stat.S_ISREG(status.st_mode):
        raise ProblemNotFoundError(
            f"{path}: a problem file has at most {MAX_SOURCE_BYTES} bytes, found {status.st_size}"
        )
    found = "a directory" if stat.S_ISDIR(status.st_mode) else "something that is no regular file"
    raise ProblemNotFoundError(f"{path}: expected a problem file, found {found}")


def parse(source: str, path: Path) -> ast.Module:
    """The syntax tree of a file's source. Raises ProblemNotFoundError when it has none."""
    try:
        return parse_source(source)
    except SyntaxError as e:
        raise ProblemNotFoundError(f"{path}: not valid Python: line {e.lineno}: {e.msg}") from e
    except (RecursionError, MemoryError) as e:
        raise ProblemNotFoundError(f"{path}: not valid Python: nested too deeply for the parser") from e


def _check_case(case: Case, path: Path) -> None:
    """What a case sets is written into the source. Raises ProblemNotFoundError where it cannot be."""
    for name, value in case.constants.items():
        try:
            ast.literal_eval(repr(value))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as e:
            raise ProblemNotFoundError(
                f"{path}: expected numbers, text, and lists or tables of them; found {name} = {value!r:.60} in case "
                f"{case.name}"
            ) from e


def validate(model: type[_Model], data: object, path: Path, what: str) -> _Model:
    """`data`, read from `path`, as `model`; `what` it should be, in words. Raises ProblemNotFoundError."""
    try:
        return model.model_validate(data)
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        found = f"; found {first['input']!r:.60}" if first["type"] != "missing" else ""
        raise ProblemNotFoundError(f"{path}: expected {what}; {where}: {first['msg']}{found}") from e


def read_json(path: Path) -> Any:
    """Raises ProblemNotFoundError where the file is none."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as e:
        raise ProblemNotFoundError(f"{path}: not valid JSON: {e}") from e


def declared(words: str) -> Contract:
    """What a file's docstring says of it: "Writes: 0, 1." names arguments, "Outputs: random." is a comparison,
    "Mode: evaluation." asks for that mode."""
    writes = _WRITES.search(words)
    return Contract(
        mode="eval" if _EVALUATION.search(words) else "train",
        in_place=tuple(int(part) for part in writes[1].split(",") if part.strip()) if writes else (),
        comparator=Comparator("distribution" if _RANDOM.search(words) else "allclose"),
    )


def _find_sizes(tree: ast.Module, path: Path) -> Sizes:
    """The file's literal `SIZES`; empty when it has none, or a constant of its own by that name.

    Raises:
        ProblemNotFoundError: it is a table by device type, but not one that `Problem.source_for` can put in place.
    """
    assigned = dict(constant_assignments(tree))
    statement = assigned.get(SIZES_NAME)
    if statement is None or statement.value is None:
        return {}
    try:
        value = ast.literal_eval(statement.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return {}
    if not isinstance(value, dict) or not set(value) & set(DEVICE_TYPES):
        return {}
    if not _is_sizes(value):
        raise ProblemNotFoundError(
            f"{path}: line {statement.lineno}: {SIZES_NAME} must map {' and '.join(map(repr, DEVICE_TYPES))} to "
            f"{{name: number}}, the same names in each"
        )
    names = {name for sizes in value.values() for name in sizes}
    if unassigned := sorted(names - set(assigned)):
        raise ProblemNotFoundError(
            f"{path}: line {statement.lineno}: {SIZES_NAME} names {', '.join(unassigned)}, which the file never "
            f"assigns in a line of its own; add `{unassigned[0]} = ...` at top level"
        )
    return value


def _is_sizes(value: dict[object, object]) -> TypeGuard[Sizes]:
    tables = list(value.values())
    return (
        set(value) <= set(DEVICE_TYPES)
        and all(isinstance(table, dict) and table.keys() == tables[0].keys() for table in tables)  # type: ignore[attr-defined]
        and all(
            isinstance(name, str) and type(number) in (int, float)
            for table in tables
            for name, number in table.items()  # type: ignore[attr-defined]
        )
    )
