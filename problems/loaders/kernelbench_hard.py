"""KernelBench-Hard: a folder with `problem.yaml`, `reference.py` and `shapes.py` is "kernelbench-hard/<folder>".

The shapes are cases: each sets module constants of the reference, whose names they match up to upper and lower case.
The set's own submissions define `Model`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.loaders.reduction import float_types, precision_of
from kbenv.problems.loaders.yaml_file import read_yaml
from kbenv.problems.problem import Case, Comparator, Contract, Origin, Problem, constant_assignments

PREFIX = "kernelbench-hard/"
_URL = "https://github.com/Infatoshi/KernelBench-Hard"
FORMAT = "KernelBench-Hard: a folder with problem.yaml, reference.py and shapes.py (SHAPES)"
_NAMES = {"atol": "absolute", "rtol": "relative"}


class _Facts(BaseModel):
    """What is read of a problem's file."""

    name: str | None = None
    display_name: str | None = None
    regime: str | None = None
    tolerance: dict[str, float | dict[str, float]] | None = None
    flops_formula: str | float | None = None
    bytes_formula: str | float | None = None


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set, or one of its problems."""
    return next(folder.rglob("problem.yaml"), None) is not None


def find(folder: Path) -> Mapping[str, Path]:
    """Each problem's file by its id; folders that hold no reference yet are left out."""
    return {
        f"{PREFIX}{path.parent.name}": path
        for path in sorted(folder.rglob("problem.yaml"))
        if path.with_name("reference.py").is_file()
    }


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its three files. Raises ProblemNotFoundError where one of them cannot be read."""
    facts = file.validate(_Facts, read_yaml(path), path, "the problem's name, regime, tolerances and formulas")
    source = path.with_name("reference.py")
    text = file.read_text(source)
    requires = sorted(set(re.findall(r"^(?:from|import)\s+(einops|triton)\b", text, re.MULTILINE)))
    # Indices of equal values may differ, which the set's own check allows and comparing values does not.
    lenient = "indices" in (facts.display_name or "").lower() or "top-k" in (facts.name or "").lower()
    formulas = {"flops": facts.flops_formula, "bytes": facts.bytes_formula}
    return file.from_source(
        text, path=source, id=id, name=facts.display_name or path.parent.name, level=None,
        category=facts.regime,
        cases=tuple(_cases(path.with_name("shapes.py"), file.parse(text, source), source)),
        origin=Origin("kernelbench-hard", _URL, "MIT", version=commit_of(path, "problems/*/problem.yaml")),
        contract=Contract(
            dtype=_dtype(text), entry="Model", adapter="ModelNew = Model",
            comparator=Comparator("custom" if lenient else "allclose", _tolerances(facts)), requires=tuple(requires),
        ),
        hints={name: formula for name, formula in formulas.items() if formula is not None},
    )  # fmt: skip


def _tolerances(facts: _Facts) -> dict[str, float]:
    """Where the set names several types, the strictest of them."""
    given = [
        {_NAMES[name]: number for name, number in value.items() if name in _NAMES}
        if isinstance(value, dict) else dict.fromkeys(_NAMES.values(), value)
        for value in (facts.tolerance or {}).values()
    ]  # fmt: skip
    return {name: min(one[name] for one in given if name in one) for name in {key for one in given for key in one}}


def _dtype(text: str) -> Any:
    """Of what the reference draws and keeps: what it calculates in is its own affair."""
    tree = ast.parse(text)
    kept = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "__init__")
    ]
    types = float_types("\n".join(kept))
    return precision_of(types) if types else None


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _cases(path: Path, reference: ast.Module, source: Path) -> list[Case]:
    shapes: Any = None
    for name, statement in constant_assignments(file.parse(file.read_text(path), path)):
        if name == "SHAPES" and statement.value is not None:
            try:
                shapes = ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as e:
                raise ProblemNotFoundError(f"{path}: SHAPES must be a literal: {e}") from e
    named = isinstance(shapes, list) and all(isinstance(shape, dict) and all(map(_is_name, shape)) for shape in shapes)
    if not named or not shapes:
        raise ProblemNotFoundError(f"{path}: expected SHAPES, a list of {{name: size}}; found {shapes!r:.60}")
    constants = {name.lower(): name for name, _ in constant_assignments(reference)}
    cases = []
    for index, shape in enumerate(shapes):
        sizes = {constants[name.lower()]: size for name, size in shape.items() if name.lower() in constants}
        # What else is set in a shape steers the set's own check: with it the case would be another one.
        if not any(value for name, value in shape.items() if name.lower() not in constants):
            cases.append(Case(str(index), "perf", sizes))
    if not cases:
        raise ProblemNotFoundError(f"{source}: no shape in {path.name} sets constants of the reference alone")
    return cases
