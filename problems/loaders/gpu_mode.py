"""GPU MODE's competitions: a folder with `task.yml`, `reference.py` and `task.py` is "gpu-mode/<competition>/<task>".

Tests are cases that are checked, benchmarks cases that are timed. `generate_input` gets a seed from the judge's draws
in place of the one in the file. The set's licence (since June 2026) restricts training on it: it is for evaluation.
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
from kbenv.problems.loaders.reduction import MODULE, float_types, on_default_device, precision_of
from kbenv.problems.loaders.yaml_file import read_yaml
from kbenv.problems.problem import Case, Comparator, Contract, Origin, Problem, defined_names

PREFIX = "gpu-mode/"
FORMAT = "GPU MODE: a folder with task.yml, reference.py (ref_kernel, generate_input, check_implementation) and task.py"
LICENCE = "June 9 Researcher Reciprocity License 1.0"

_ENTRY = "custom_kernel"
_EXACT = re.compile(r"verbose_allequal")
_CHECK = "check_implementation"
_CLOSE = {"verbose_allclose", "match_reference", "allclose"}
_NAMES = {"atol": "absolute", "rtol": "relative"}
_HARMLESS = {"ref_kernel", "len", "append", "join", "float", "numel", "isinstance", "tuple"}
_CHECKER = """
def _kbenv_check(arguments, output):
    found = check_implementation(arguments[0], output)
    return found[0] if isinstance(found, tuple) else not found
"""
_WRITES = re.compile(r"^\s+\w+\[\s*(?:\.\.\.|:)\s*\] = |\.copy_\(", re.MULTILINE)
_MODEL = '''
class {model}(torch.nn.Module):
    """Calls `{function}` with everything that `generate_input` made, as one argument."""

    def forward(self, data):
        return {function}(data)
'''
_INPUTS = """
CASE = {{}}


def get_inputs():
    case = dict(CASE)
    if "seed" in case:
        case["seed"] = int(torch.randint(0, 2**31 - 1, (), device="cpu"))
    return [generate_input(**case)]


def get_init_inputs():
    return []
"""


class _File(BaseModel):
    name: str = ""
    source: str = ""


class _Task(BaseModel):
    """What is read of a task file; an empty list may be written as nothing."""

    files: list[_File] | None = None
    tests: list[dict[str, Any]] | None = None
    benchmarks: list[dict[str, Any]] | None = None


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set, or one of its tasks."""
    return next(folder.rglob("task.yml"), None) is not None


def find(folder: Path) -> Mapping[str, Path]:
    """Each task's file by its id."""
    root = folder / "problems" if (folder / "problems").is_dir() else folder
    found = {}
    for path in sorted(root.rglob("task.yml")):
        name = path.parent.relative_to(root).as_posix() if path.parent != root else folder.name
        found[f"{PREFIX}{name}"] = path
    return found


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its task file and the Python files that it names.

    Raises:
        ProblemNotFoundError: one of them cannot be read, or the reference lacks a function that the format wants.
    """
    task = file.validate(_Task, read_yaml(path), path, "files, tests and benchmarks, each a list of {name: value}")
    reference = file.read_text(path.with_name("reference.py"))
    names = set(defined_names(file.parse(reference, path.with_name("reference.py")).body))
    if missing := [name for name in ("ref_kernel", "generate_input") if name not in names]:
        raise ProblemNotFoundError(f"{path.with_name('reference.py')}: defines no {missing[0]}")
    cases = tuple(_cases(task, path))
    types = float_types(reference) - {"float64"}
    requires = sorted(set(re.findall(r"^\s*(?:from|import)\s+(aiter|triton|numpy)\b", reference, re.MULTILINE)))
    text = on_default_device(reference)
    shown = "\n\n".join(
        [reference.strip(), "import torch", _MODEL.format(model="Model", function="ref_kernel").strip()]
    )
    parts = [
        MODULE, *_modules(task, path), text, "import torch", _MODEL.format(model="Model", function="ref_kernel"),
        _INPUTS.format(),
    ]  # fmt: skip
    comparator = _comparator(reference)
    if comparator.kind == "custom" and _CHECK in names:
        parts.append(_CHECKER)
    return file.from_source(
        "\n\n".join(part.strip("\n") + "\n" for part in parts), path=path, id=id, name=path.parent.name, level=None,
        cases=cases, shown=f"{shown}\n\n\ndef get_init_inputs():\n    return []\n",
        contract=Contract(
            reference="function", dtype=precision_of(types) if types else None,
            comparator=comparator, in_place=(0,) if _WRITES.search(reference) else (),
            processes=max([1, *(_processes(case.constants["CASE"], path) for case in cases)]),
            entry=_ENTRY, adapter="import torch\n\n\n" + _MODEL.format(model="ModelNew", function=_ENTRY).strip(),
            requires=tuple(requires),
        ),
        origin=Origin(
            "gpu-mode", "https://github.com/gpu-mode/reference-kernels", LICENCE, may_train=False,
            version=commit_of(path, "problems/*/*/task.yml"),
        ),
    )  # fmt: skip


def _processes(values: Mapping[str, Any], path: Path) -> int:
    found = values.get("world_size", 1)
    if not isinstance(found, int):
        raise ProblemNotFoundError(f"{path}: expected world_size, a number of processes; found {found!r:.60}")
    return found


def _cases(task: _Task, path: Path) -> list[Case]:
    cases = [Case(f"test-{index}", "public", {"CASE": values}) for index, values in enumerate(task.tests or [])]
    for index, values in enumerate(task.benchmarks or []):
        cases.append(Case(f"benchmark-{index}", "perf", {"CASE": values}))
    if not cases:
        raise ProblemNotFoundError(f"{path}: expected tests or benchmarks, found neither")
    return cases


def _comparator(reference: str) -> Comparator:
    """What compares every element within tolerances, or all exactly, and what is a checker of the task's own."""
    if _EXACT.search(reference):
        return Comparator("exact")
    match = re.search(r"make_match_reference\(ref_kernel(.*?)\)", reference)
    if match is None and not _only_close(ast.parse(reference)):
        return Comparator("custom")
    text = match[1] if match is not None else reference
    found = re.findall(r"\b([ar]tol)=([-\d.e]+)", text)
    # Of several calls the strictest numbers.
    return Comparator("allclose", {_NAMES[name]: min(float(x) for n, x in found if n == name) for name, _ in found})


def _only_close(tree: ast.Module) -> bool:
    """Whether `check_implementation` calls nothing that compares but what compares every element."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _CHECK:
            calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            names = {func.attr if isinstance(func, ast.Attribute) else ast.unparse(func) for func in calls}
            return bool(names & _CLOSE) and names <= _CLOSE | _HARMLESS
    return False


def _modules(task: _Task, path: Path) -> list[str]:
    """The Python files that the reference may import, as modules of their own."""
    found = []
    for entry in task.files or []:
        name = entry.name
        if name.endswith(".py") and name.removesuffix(".py") in ("task", "utils") and "@" not in entry.source:
            text = file.read_python(path.parent / entry.source)
            found.append(f"_define_module({name.removesuffix('.py')!r}, {on_default_device(text)!r})")
    # `utils` first: `task` may import it.
    return sorted(found, key=lambda line: "'utils'" not in line)
