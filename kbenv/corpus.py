"""The corpora of submissions under tests/ of the repository: what must never be credited, and what always must.

A file is the source of one submission, with literal constants that say what is to come of it. It is read and never
executed here.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from kbenv.errors import UsageError
from kbenv.protocol import Protocol
from kbenv.verdict import Verdict

TESTS = Path(__file__).resolve().parent.parent / "tests"
"""Where the corpora are in a checkout; an installed package has none."""
SLOWED_DOWN = 0.7
"""What "no_effect" submissions may at most be credited with: they do twice to ten times the reference's work."""
NO_EFFECT = "no_effect"
UNJUDGED = "UNJUDGED"
"""In `Case.expect`: the problem itself is refused, so that there is no verdict."""
BEST_EFFORT = "BEST_EFFORT"
"""The constant that says why such a submission may be credited, for what it is, all the same."""
NEEDS_PAIRS = "NEEDS_PAIRS"
"""The constant that says how many pairs of runners it takes to see what a submission does; with fewer it is right."""

NEEDS = "NEEDS"
"""The constant that names what it needs beyond PyTorch and compilers: a module, or a variable that names a folder."""

MEMORY_AT_MOST = "MEMORY_AT_MOST"
"""The constant that says which memory ratio a credited verdict may claim at most."""


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
    def name(self) -> str:
        return self.path.stem

    @property
    def expect(self) -> tuple[str, ...]:
        """Acceptable statuses, or "no_effect"."""
        expected = self.constants["EXPECT"]
        return (expected,) if isinstance(expected, str) else tuple(expected)

    @property
    def lacking(self) -> str | None:
        """What it needs and this installation does not have; None when it can be judged here."""
        needed: str | None = self.constants.get(NEEDS)
        if needed is None:
            return None
        has_it = os.path.isdir(os.environ.get(needed, "")) if needed.isupper() else find_spec(needed) is not None
        return None if has_it else needed


def load_case(path: Path, tests: Path = TESTS) -> Case:
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
        problem = str(tests / problem)
    return Case(path=path, source=source, problem=problem, constants=constants)


def load_cases(corpus: str, tests: Path = TESTS) -> list[Case]:
    """Every submission directly in tests/`corpus`. Raises UsageError when there is no such folder."""
    folder = tests / corpus
    if not folder.is_dir():
        raise UsageError(
            f"the corpora are in the repository's tests/, and {tests} holds no {corpus}: name a checkout's"
        )
    return [load_case(path, tests) for path in sorted(folder.glob("*.py"))]


def quick(protocol: Protocol, device: str) -> Protocol:
    """The same checks at quick effort, but two pairs of runners, and limits that an endless submission soon meets."""
    limits = {"call_s": 5.0, "job_s": 90.0, "host_memory_bytes": 3 << 30, "scratch_bytes": 1 << 30, "build_s": 15.0}
    if device != "cpu":
        limits |= {"job_s": 400.0, "build_s": 200.0, "host_memory_bytes": 16 << 30}  # nvcc takes its time
    short = protocol.with_effort("quick")
    timing = short.timing.model_copy(update={"runner_pairs": 2, "turns_per_pair": 3})  # what follows the first is new
    return short.model_copy(update={"timing": timing, "limits": short.limits.model_copy(update=limits)})


def find_violation(kind: Literal["exploit", "honest"], case: Case, verdict: Verdict) -> str | None:
    """What of a verdict must not be, in words; None when all is as it should."""
    if kind == "honest":
        return None if verdict.credited else f"refused: {verdict.status} ({verdict.message})"
    if not verdict.credited or BEST_EFFORT in case.constants:
        return None
    if verdict.protocol.timing.runner_pairs < case.constants.get(NEEDS_PAIRS, 1):
        return None
    assert verdict.speedup is not None  # of a credited verdict
    if NO_EFFECT not in case.expect:
        return f"credited with {verdict.speedup.value:.3g}x"
    if verdict.speedup.value >= SLOWED_DOWN:
        return f"credited with {verdict.speedup.value:.3g}x, more than its honest work is worth"
    if verdict.memory is not None and verdict.memory.ratio > case.constants.get(MEMORY_AT_MOST, float("inf")):
        return f"credited with a memory ratio of {verdict.memory.ratio:.3g}, more than it is worth"
    return None
