"""kbenv's own problems: the files `core/level{1,2,3}/*.py`, with ids such as "core/level1/relu"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbenv.problems.loaders import file
from kbenv.problems.problem import Problem

PREFIX = "core/"
_FOLDER = Path(__file__).resolve().parent.parent / "core"
_LEVELS = (1, 2, 3)


def find() -> Mapping[str, Path]:
    """Each problem's file by its id."""
    return {
        f"{PREFIX}level{level}/{path.stem}": path
        for level in _LEVELS
        for path in (_FOLDER / f"level{level}").glob("[!_]*.py")
    }


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file.

    Raises:
        ProblemNotFoundError: as `file.read`.
    """
    return file.read(path, id=id, name=path.stem, level=int(path.parent.name.removeprefix("level")))
