"""The corpora of submissions under tests/: sources with literal constants, which are read and never executed here."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent.parent

SANDBOXES = ("process", pytest.param("docker", marks=pytest.mark.docker))
"""For tests that hold in every sandbox."""
SLOWED_DOWN = 0.7
"""What "no_effect" submissions may at most be credited with: they do twice to ten times the reference's work."""


@dataclass(frozen=True)
class Case:
    """One submission of a corpus.

    Attributes:
        source: as it is to be submitted, after what `WRITTEN_AS` or `BROKEN_BY` ask for.
        problem: an id, or the path of a problem file under tests/.
        constants: the file's literal constants by name.
    """

    path: Path
    source: str
    problem: str
    constants: dict[str, Any]

    @property
    def expect(self) -> tuple[str, ...]:
        """Acceptable statuses, or "no_effect"."""
        expected = self.constants["EXPECT"]
        return (expected,) if isinstance(expected, str) else tuple(expected)


def load_case(path: Path) -> Case:
    """Reads one file. Raises KeyError when it names no PROBLEM."""
    source = path.read_text(encoding="utf-8")
    constants: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                constants[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # a constant of the submission's own
    if "BROKEN_BY" in constants:
        whole, broken = constants["BROKEN_BY"]
        source = broken.join(source.rsplit(whole, 1))
    if constants.get("WRITTEN_AS") == "bom-crlf":
        source = "\ufeff" + source.replace("\n", "\r\n")
    problem = constants["PROBLEM"]
    if problem.endswith(".py"):
        problem = str(TESTS / problem)
    return Case(path=path, source=source, problem=problem, constants=constants)


def load_cases(corpus: str) -> list[Case]:
    """Every submission directly in tests/`corpus`."""
    return [load_case(path) for path in sorted((TESTS / corpus).glob("*.py"))]


def name_of(case: Case) -> str:
    """For test ids."""
    return case.path.stem
