"""KernelBench-X: `data/kernelbenchx/<category>/<name>.py` is the problem "kernelbench-x/<category>/<name>"."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, RootModel

from kbenv.problems.loaders import file, function_test
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.problem import Comparator, Contract, Origin, Problem

PREFIX = "kernelbench-x/"
FORMAT = "KernelBench-X: data/kernelbenchx/<category>/<name>.py, each a function, a line of #, and its test"

_URL = "https://github.com/BonnieW05/KernelBenchX"
_INDEX = "data/kernelbenchx_v1.json"


class _Entry(BaseModel):
    file: str
    difficulty: int | str | None = None
    precision_thresholds: dict[str, float] | None = None


class _Index(RootModel[list[_Entry]]):
    pass


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set."""
    return (folder / "data" / "kernelbenchx").is_dir()


def find(folder: Path) -> Mapping[str, Path]:
    """Each problem's file by its id: those that the set's own index lists."""
    root = folder / "data" / "kernelbenchx"
    listed = _index(folder)
    return {
        f"{PREFIX}{path.parent.name}/{path.stem}": path
        for path in sorted(root.glob("*/*.py"))
        if not listed or f"{path.parent.name}/{path.name}" in listed
    }


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file. Raises ProblemNotFoundError as `function_test.load`."""
    root = path.parents[3]
    facts = _index(root).get(f"{path.parent.name}/{path.name}", _Entry(file=path.name))
    thresholds = facts.precision_thresholds
    category = path.parent.name.lower()
    contract = Contract(
        reference="function",
        comparator=Comparator("metrics", thresholds) if thresholds else Comparator(),
        unsupported=_SEEDED if category == "random" and path.stem not in _NOT_RANDOM else None,
    )
    data_utils = root / "utils" / "data_utils.py"
    return function_test.load(
        id, path, contract, modules={"data_utils": data_utils} if data_utils.is_file() else {}, category=category,
        origin=Origin("kernelbench-x", _URL, "Apache-2.0", version=commit_of(path, "data/kernelbenchx/*/*.py")),
        tags=(f"difficulty:{facts.difficulty}",) if facts.difficulty is not None else (),
    )  # fmt: skip


_SEEDED = "its outputs are random, and its test repeats them by seeding PyTorch's generators, which a kernel cannot use"
_NOT_RANDOM = {"logspace"}
"""Listed among the random ones, and the same at every call."""


@cache
def _index(root: Path) -> dict[str, _Entry]:
    path = root / _INDEX
    if not path.is_file():
        return {}
    found = file.validate(_Index, file.read_json(path), path, "the set's index, a list of objects with `file`")
    return {entry.file: entry for entry in found.root}
