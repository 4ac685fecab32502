"""kbenv's own problems: the files `core/level{1,2,3,4}/*.py`, with ids such as "core/level1/relu".

A file's docstring tells its category ("Category: activation.") and what bounds it ("Bound: 5.37 GB, 0.55 TFLOP."): the
bytes of inputs, parameters and outputs, each moved once, and the operations of its products, at the GPU sizes. "Writes:
0." names the arguments that forward writes into. A JSON file of the same name lists cases, hidden ones among them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

from kbenv.problems.loaders import file
from kbenv.problems.problem import Case, Origin, Problem

PREFIX = "core/"
EXERCISES: Mapping[str, str] = {
    "core/level1/matrix_vector": "PyTorch's own product streams the matrix once, at the speed of a copy",
    "core/level1/relu": "PyTorch's own kernel moves each byte once, at the speed of a copy",
    "core/level1/softmax": "PyTorch's own kernel moves each byte once, at the speed of a copy",
}
"""Problems of levels 1 and 2 in which there is nothing to gain, with why: less than 1.1 over the roofline, by
benchmarks/results/headroom.md.

They are there by their full names, for examples and tests, and in no pattern such as "core/*".
"""
_FOLDER = Path(__file__).resolve().parent.parent / "core"
_LEVELS = (1, 2, 3, 4)
_ORIGIN = Origin("core", "https://pypi.org/project/kbenv", "MIT")
_CATEGORY = re.compile(r"^Category: ([\w ]+)\.", re.MULTILINE)
_BOUND = re.compile(r"^Bound: ([\d.]+) GB(?:, ([\d.]+) TFLOP)?\.", re.MULTILINE)


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
    text = file.read_text(path)
    words = ast.get_docstring(file.parse(text, path)) or ""
    category, bound = _CATEGORY.search(words), _BOUND.search(words)
    hints: dict[str, float] = {}
    if bound is not None:
        hints = {"bytes": float(bound[1]) * 1e9, "flops": float(bound[2] or 0) * 1e12}
    return file.from_source(
        text, path=path, id=id, name=path.stem, level=int(path.parent.name.removeprefix("level")), origin=_ORIGIN,
        category=category[1] if category else None, hints=hints, cases=_cases(path.with_suffix(".json")),
        contract=file.declared(words),
    )  # fmt: skip


def _cases(path: Path) -> tuple[Case, ...]:
    return tuple(Case(**entry) for entry in json.loads(file.read_text(path))) if path.is_file() else ()
