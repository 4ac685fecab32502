"""Seeds and mutants: an honest kernel's text, a small fault as a patch of it, and the source that is judged.

A mutant is kept as its patch: offsets into the seed's file. `Mutant.source` is the submission's text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
MANIFEST = HERE / "manifest.jsonl"
DROPPED = HERE / "dropped.json"
SALT = "kbenv mutants 1"
SPLITS = ("tune", "held-out")
_PRELUDE_IMPORT = re.compile(r"^from tests\.mutants\.preludes\.(\w+) import .*\n", re.M)


@dataclass(frozen=True)
class Seed:
    """One honest kernel. `language` is what its kernels are written in: c, torch, triton or cuda."""

    name: str
    text: str

    @property
    def language(self) -> str:
        return self.name.rsplit("_", 1)[1]

    @cached_property
    def problem(self) -> str:
        """An id, or the path of a problem file."""
        name = re.search(r'^PROBLEM = "(.*)"$', self.text, re.M).group(1)
        return str(TESTS / name) if name.endswith(".py") else name

    @property
    def problem_name(self) -> str:
        return Path(self.problem).stem


@dataclass(frozen=True)
class Patch:
    """`old` stands at `offset` of the seed's text; `new` replaces it."""

    offset: int
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One small fault. `operator` names its kind; `note` says which of its forms."""

    seed: Seed
    operator: str
    note: str
    patches: tuple[Patch, ...]

    @property
    def id(self) -> str:
        text = "\n".join(f"{patch.offset} {patch.old} {patch.new}" for patch in self.patches)
        return f"{self.seed.name}-{self.operator}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def line(self) -> int:
        """The line in the seed's file where the last patch stands (helper functions come first)."""
        return self.seed.text.count("\n", 0, self.patches[-1].offset) + 1

    @property
    def split(self) -> str:
        """By problem and operator, so that near-duplicates in several seeds or languages lie on the same side."""
        group = f"{SALT}/{self.seed.problem_name}/{self.operator}"
        return SPLITS[hashlib.sha256(group.encode()).digest()[0] & 1]

    @property
    def source(self) -> str:
        return stand_alone(patched(self.seed.text, self.patches))


def patched(text: str, patches: tuple[Patch, ...]) -> str:
    """Raises ValueError when a patch does not fit."""
    end = len(text) + 1
    for patch in sorted(patches, key=lambda patch: patch.offset, reverse=True):
        after = patch.offset + len(patch.old)
        if text[patch.offset : after] != patch.old or after > end:
            raise ValueError(f"expected {patch.old!r} at offset {patch.offset}, found {text[patch.offset : after]!r}")
        text, end = text[: patch.offset] + patch.new + text[after:], patch.offset
    return text


def stand_alone(text: str) -> str:
    """The seed's text with the prelude that it imports in place of the import."""
    return _PRELUDE_IMPORT.sub(lambda match: (HERE / "preludes" / f"{match.group(1)}.py").read_text(), text)


def load_seeds(pattern: str = "*") -> Iterator[Seed]:
    """In alphabetical order."""
    for path in sorted((HERE / "seeds").glob(f"{pattern}.py")):
        yield Seed(path.stem, path.read_text(encoding="utf-8"))


def as_record(mutant: Mutant) -> dict[str, Any]:
    """What the manifest says of a mutant before its witness."""
    return {
        "id": mutant.id, "seed": mutant.seed.name, "problem": mutant.seed.problem_name,
        "language": mutant.seed.language, "operator": mutant.operator, "note": mutant.note, "line": mutant.line,
        "split": mutant.split,
        "patches": [[patch.offset, patch.old, patch.new] for patch in mutant.patches],
    }  # fmt: skip


def from_record(record: dict[str, Any]) -> Mutant:
    (seed,) = load_seeds(record["seed"])
    return Mutant(seed, record["operator"], record["note"], tuple(Patch(*patch) for patch in record["patches"]))


def load_manifest() -> list[dict[str, Any]]:
    """One record for each mutant that has a witness, by id."""
    return [json.loads(line) for line in MANIFEST.read_text(encoding="utf-8").splitlines()]
