"""A file of results, one JSON object a line, so that work which is interrupted goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from kbenv.errors import SandboxError, UsageError

T = TypeVar("T", bound=BaseModel)


class Record(Generic[T]):
    """The file at `path`, whose lines are of `model` (with a `schema_version`); made when absent.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, model: type[T]) -> None:
        self.path = path
        self._model = model
        try:
            with path.open("ab"):
                pass
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; choose another --out") from error

    def read(self) -> list[T]:
        """What is on record, in order. A last line that was cut off is removed.

        Raises:
            UsageError: another line is none of `model`.
        """
        data = self.path.read_bytes()
        if not data.endswith(b"\n") and data:
            whole = data.rfind(b"\n") + 1
            with self.path.open("r+b") as file:
                file.truncate(whole)
            data = data[:whole]
        return parse_lines(data, self.path, self._model)

    def append(self, item: T) -> None:
        """Adds a line, whole. Raises SandboxError when the disk takes it not."""
        try:
            with self.path.open("ab") as file:
                file.write(item.model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SandboxError(f"cannot write {self.path}: {error.strerror}; make room, then run it again") from error


def parse_lines(data: bytes, path: Path, model: type[T]) -> list[T]:
    """The lines as objects of `model`; those of another `schema_version` are passed over.

    Raises:
        UsageError: a line is none.
    """
    version = model.model_fields["schema_version"].default
    found = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            if json.loads(line).get("schema_version") == version:
                found.append(model.model_validate_json(line))
        except (ValidationError, ValueError, AttributeError) as error:
            noun = model.__name__.lower()
            raise UsageError(f"{path}: line {number} is no {noun}; remove it, or choose another file") from error
    return found


def first_error(error: ValidationError) -> str:
    """Of what pydantic found wrong with a file the first in a few words, and how much else there is."""
    first, *others = error.errors(include_url=False)
    where = ".".join(str(part) for part in first["loc"])
    said = f"{where}: {first['msg']}" if where else first["msg"]
    return f"{said} (and {len(others)} more)" if others else said
