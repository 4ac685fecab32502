"""One module for each format that problems come in, and which of them a folder or a file is in.

A format's module has `FORMAT` (what it looks like, in a line), `recognises`, `find` and `load`. Nothing here executes
what it reads.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import (
    dataset,
    definition,
    file,
    function_test,
    gpu_mode,
    kernelbench,
    kernelbench_hard,
    kernelbench_verified,
    kernelbench_x,
    multikernelbench,
    robust_kbench,
    tritonbench,
)
from kbenv.problems.problem import REQUIRED_NAMES, Contract, Problem, defined_names

__all__ = ["EVALUATION_ALONE", "FORMATS", "LOADERS", "Loader", "load_file", "recognise"]


class Loader(Protocol):
    """A format's module."""

    @property
    def FORMAT(self) -> str: ...

    def recognises(self, folder: Path) -> bool:
        """Whether `folder` holds problems in this format."""

    def find(self, folder: Path) -> Mapping[str, Path]:
        """Each problem's file by its id."""

    def load(self, id: str, path: Path) -> Problem:
        """The problem `id`, from its file."""


LOADERS: tuple[Loader, ...] = (
    kernelbench_verified,
    kernelbench_x,
    tritonbench,
    multikernelbench,
    kernelbench,
    dataset,
    robust_kbench,
    gpu_mode,
    kernelbench_hard,
    definition,
)
"""The first that recognises a folder has it: the particular ones come before those that look less closely."""

EVALUATION_ALONE: Mapping[str, str] = {
    gpu_mode.PREFIX: gpu_mode.LICENCE,
    definition.SOL: definition.SOL_LICENCE,
}
"""What the ids of problems begin with whose licence, named here, restricts training on them."""

FORMATS = (
    "a file with Model, get_inputs and get_init_inputs (KernelBench)",
    "a file of a function, a line of #, and its test (KernelBench-X, TritonBench)",
    *(loader.FORMAT for loader in LOADERS),
)


def recognise(folder: Path) -> Loader:
    """The format of a folder, or of a data set's file.

    Raises:
        ProblemNotFoundError: it is in none of them; the message names them.
    """
    if str(folder).startswith(("https:/", "http:/", "git@")):
        address = str(folder).replace(":/", "://", 1)  # a path keeps one slash of two
        raise ProblemNotFoundError(f"{address}: expected a folder or a file here, found an address; git clone it first")
    if not folder.exists():
        raise ProblemNotFoundError(f"{folder}: no such file or folder")
    found = next((loader for loader in LOADERS if loader.recognises(folder)), None)
    if found is None:
        raise ProblemNotFoundError(f"{folder}: in no format that is known; these are:{_listed(FORMATS)}")
    return found


def load_file(path: Path, id: str) -> Problem:
    """The problem in one Python file: a function with its test, or KernelBench's format.

    Raises:
        ProblemNotFoundError: it cannot be read as either.
    """
    text = file.read_text(path)
    if function_test.is_one(text) and "def get_init_inputs" not in text:
        return function_test.load(id, path, Contract(reference="function"))
    tree = file.parse(text, path)
    if not set(REQUIRED_NAMES) & set(defined_names(tree.body)):
        raise ProblemNotFoundError(
            f"{path}: found no {', no '.join(REQUIRED_NAMES)}, and no line of #; one file is in one of these formats:"
            f"{_listed(FORMATS[:2])}"
        )
    contract = file.declared(ast.get_docstring(tree) or "")
    return file.from_source(text, path=path, id=id, name=path.stem, level=None, contract=contract)


def _listed(formats: Sequence[str]) -> str:
    return " " + "; ".join(formats)
