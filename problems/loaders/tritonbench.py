"""TritonBench: `data/TritonBench_T_v1/add.py` is "tritonbench/t/add"; those of `TritonBench_G_v1` are "tritonbench/g/".

T's references are PyTorch functions; G's are Triton kernels from public repositories, which run on a GPU only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbenv.problems.loaders import function_test
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.problem import Contract, Origin, Problem

PREFIX = "tritonbench/"
FORMAT = "TritonBench: data/TritonBench_{G,T}_v1/<name>.py, each a function, a line of #, and its test"

_URL = "https://github.com/thunlp/TritonBench"
_FOLDERS = {"t": "TritonBench_T_v1", "g": "TritonBench_G_v1"}


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set."""
    return any((folder / "data" / name).is_dir() for name in _FOLDERS.values())


def find(folder: Path) -> Mapping[str, Path]:
    """Each problem's file by its id."""
    return {
        f"{PREFIX}{letter}/{path.stem}": path
        for letter, name in _FOLDERS.items()
        for path in sorted((folder / "data" / name).glob("*.py"))
    }


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file. Raises ProblemNotFoundError as `function_test.load`."""
    from_repositories = path.parent.name == _FOLDERS["g"]
    contract = Contract(
        reference="operator" if from_repositories else "function",
        backends=("triton",),
        requires=("triton",) if from_repositories else (),
    )
    origin = Origin("tritonbench", _URL, "Apache-2.0", version=commit_of(path, "data/*/*.py"))
    return function_test.load(id, path, contract, keeps_types=from_repositories, origin=origin)
