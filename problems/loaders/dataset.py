"""KernelBench as it is published as a data set: a table with the columns code, level, name and problem_id.

Parquet (`level_1-00000-of-00001.parquet`; needs pyarrow) or JSON lines. Rows are the problems "kernelbench/level1/19",
as in a checkout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file, kernelbench
from kbenv.problems.problem import Problem

PREFIX = kernelbench.PREFIX
FORMAT = "KernelBench's data set: *.parquet or *.jsonl with the columns code, level, name and problem_id"
COLUMNS = ("code", "level", "name", "problem_id")

_SUFFIXES = (".parquet", ".jsonl")


class _Row(BaseModel):
    code: str
    level: int
    name: str
    problem_id: int


def recognises(folder: Path) -> bool:
    """Whether `folder` holds such tables, or is one."""
    return any(_is_table(path) for path in _tables(folder))


def find(folder: Path) -> Mapping[str, Path]:
    """Each row's table by the problem's id. Raises ProblemNotFoundError where a table cannot be read."""
    found: dict[str, Path] = {}
    for path in _tables(folder):
        for row in _rows(path) if _is_table(path) else []:
            found[f"{PREFIX}level{row['level']}/{row['problem_id']}"] = path
    return found


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its table. Raises ProblemNotFoundError as `file.from_source`."""
    for row in _rows(path):
        if f"{PREFIX}level{row['level']}/{row['problem_id']}" == id:
            name = str(row["name"]).removesuffix(".py")
            name = name.split("_", 1)[1] if name[:1].isdigit() and "_" in name else name
            text = str(row["code"]).replace("\r\n", "\n")
            version = " ".join(filter(None, (_sizes(path), "data set")))
            return kernelbench.from_text(
                text, id, path, int(row["level"]), int(row["problem_id"]), name.strip("_"), version
            )
    raise ProblemNotFoundError(f"{path}: holds no {id}")


@cache
def _sizes(path: Path) -> str | None:
    """The version of the sizes ("v0", "v0.1"), which level 1, problem 19 tells, in this table or in one beside it."""
    tables = [path, *(table for table in _tables(path.parent) if _is_table(table))]
    texts = (row["code"] for table in tables for row in _rows(table) if (row["level"], row["problem_id"]) == (1, 19))
    text = next(texts, None)
    return kernelbench.sizes_of(text) if text is not None else None


def _tables(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder] if folder.suffix in _SUFFIXES else []
    found = [path for suffix in _SUFFIXES for path in [*folder.glob(f"*{suffix}"), *folder.glob(f"data/*{suffix}")]]
    return sorted(path for path in found if path.is_file())


def _is_table(path: Path) -> bool:
    """Whether it has the columns. A Parquet file that cannot be looked at passes, and reading it says why it cannot."""
    if path.suffix == ".parquet":
        try:
            from pyarrow import ArrowException, parquet

            return set(COLUMNS) <= set(parquet.read_schema(path).names)
        except (ImportError, ArrowException, OSError):
            return True
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline()
    return all(f'"{column}"' in first for column in COLUMNS)


@lru_cache(maxsize=16)
def _rows(path: Path) -> list[dict[str, Any]]:
    rows = _parquet(path) if path.suffix == ".parquet" else _json_lines(path)
    for number, row in enumerate(rows, start=1):
        file.validate(_Row, row, path, f"rows with {', '.join(COLUMNS)}; row {number}")
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as e:
        raise ProblemNotFoundError(f"{path}: reading it needs pyarrow: pip install 'kbenv[sets]'") from e
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as e:
        raise ProblemNotFoundError(f"{path}: not a Parquet file that can be read: {' '.join(str(e).split())}") from e
    return rows


def _json_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in file.read_text(path).split("\n") if line.strip()]
    except ValueError as e:
        raise ProblemNotFoundError(f"{path}: not JSON lines: {e}") from e
