"""Operator definitions in JSON, with workloads: SOL-ExecBench's and FlashInfer-Bench's.

SOL-ExecBench's published tables (Parquet) are not read: its own script unpacks them into this form.
SOL-ExecBench keeps a problem in a folder (`definition.json`, `workload.jsonl`), FlashInfer-Bench a set of them in
`definitions/**/*.json` and `workloads/**/<name>.jsonl`. A definition names axes, inputs, outputs and a reference `run`;
a workload gives the axes that vary and says how each input is made. The workloads are the problem's cases, the largest
is timed. A submission may define `run` itself, with or without the outputs as further arguments to write into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.loaders.reduction import precision_of
from kbenv.problems.problem import Case, Comparator, Contract, Origin, Problem, defined_names

SOL, FLASHINFER = "sol-execbench/", "flashinfer-bench/"
SOL_LICENCE = "NVIDIA Evaluation Dataset License"
"""Of the data set, which is for evaluation alone. The repository and its few samples are Apache-2.0; an id does not
tell which of both it names, so that the stricter licence stands for all."""
FORMAT = (
    "SOL-ExecBench, FlashInfer-Bench: definition.json and workload.jsonl (into which SOL-ExecBench's "
    "scripts/download_solexecbench.py unpacks its tables), or definitions/ and workloads/"
)

_ORIGINS = {
    SOL: Origin("sol-execbench", "https://github.com/NVIDIA/SOL-ExecBench", SOL_LICENCE, may_train=False),
    FLASHINFER: Origin("flashinfer-bench", "https://github.com/flashinfer-ai/flashinfer-bench", "Apache-2.0"),
}
_LAYOUTS = {  # the data sets lie beside SOL-ExecBench's own samples, and are in no state of that repository
    SOL: ("tests/sol_execbench/samples/*/definition.json", "examples/*/*/definition.json"),
    FLASHINFER: ("definitions/*.json", "definitions/*/*.json", "examples/*/*/definitions/*.json"),
}
_SOLUTION_ENTRY = "run"
_SOL_TOLERANCE = {"max_atol": 1e-2, "max_rtol": 1e-2, "required_matched_ratio": 0.99}
_TOLERANCES: Mapping[str, tuple[str, Callable[[list[float]], float]]] = {
    "max_atol": ("absolute", min),
    "max_rtol": ("relative", min),
    "required_matched_ratio": ("share", max),
    "max_error_cap": ("cap", min),
}


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Axis(_Data):
    type: str
    value: int | None = None
    expression: str | None = None


class _Tensor(_Data):
    shape: list[str] | None
    dtype: str


class _Definition(_Data):
    name: str
    axes: dict[str, _Axis]
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]
    reference: str
    op_type: str | None = None
    tags: list[str] = Field(default_factory=list)
    custom_inputs_entrypoint: str | None = None


class _Input(_Data):
    type: str
    value: bool | int | float | None = None


class _Workload(_Data):
    axes: dict[str, int]
    inputs: dict[str, _Input]
    tolerance: dict[str, float | bool | None] = Field(default_factory=dict)


def recognises(folder: Path) -> bool:
    """Whether `folder` holds definitions of this format."""
    return any(True for _ in _files(folder))


def find(folder: Path) -> Mapping[str, Path]:
    """Each definition's file by its id."""
    found: dict[str, Path] = {}
    for prefix, path in _files(folder):
        # SOL-ExecBench has some definitions once for each language of its examples.
        found.setdefault(f"{prefix}{path.parent.name if prefix == SOL else path.stem}", path)
    return found


def _files(folder: Path) -> list[tuple[str, Path]]:
    sol = [(SOL, path) for path in sorted(folder.rglob("definition.json"))]
    trace = [(FLASHINFER, path) for path in sorted(folder.rglob("*.json")) if "definitions" in path.parts]
    return sol + trace


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its definition and its workloads.

    Raises:
        ProblemNotFoundError: one of them cannot be read, or no workload can be made from them alone.
    """
    definition = _read_definition(path)
    workloads, left_out = _read_workloads(path, definition)
    if not workloads:
        raise ProblemNotFoundError(f"{path}: found no workload that can be made without further files ({left_out})")
    floats = {item.dtype for item in definition.inputs.values() if item.shape is not None and "float" in item.dtype}
    prefix = SOL if id.startswith(SOL) else FLASHINFER
    cases = tuple(_cases(definition, workloads))
    return file.from_source(
        _source(definition, workloads[0]), path=path, id=id, name=definition.name, level=None,
        category=definition.op_type, tags=tuple(definition.tags), cases=cases if len(cases) > 1 else (),
        origin=replace(_ORIGINS[prefix], version=commit_of(path, *_LAYOUTS[prefix])),
        contract=Contract(
            reference="backward" if definition.op_type == "backward" else "operator",
            dtype=precision_of(floats) if floats else None, comparator=_comparator(prefix, workloads),
            entry=_SOLUTION_ENTRY, adapter=_adapter(definition),
        ),
    )  # fmt: skip


def _read_definition(path: Path) -> _Definition:
    try:
        definition = _Definition.model_validate_json(file.read_text(path))
        tree = file.parse(definition.reference, path)
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ProblemNotFoundError(f"{path}: expected an operator's definition; {where}: {first['msg']}") from e
    wanted = ["run", *filter(None, [definition.custom_inputs_entrypoint])]
    missing = [name for name in wanted if name not in set(defined_names(tree.body))]
    if missing:
        raise ProblemNotFoundError(f"{path}: its reference defines no {missing[0]}")
    return definition


def _read_workloads(path: Path, definition: _Definition) -> tuple[list[_Workload], str]:
    """Those whose inputs can be made, and in words how many cannot."""
    beside = path.with_name("workload.jsonl")
    if not beside.is_file():
        roots = [parent for parent in path.parents if parent.name == "definitions"]
        named = sorted(roots[0].with_name("workloads").rglob(f"{definition.name}.jsonl")) if roots else []
        if not named:
            return [], "there is no workload file"
        beside = named[0]
    possible, stored = [], 0
    for number, line in enumerate(file.read_text(beside).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            workload = _Workload.model_validate(data.get("workload", data))
        except (ValueError, AttributeError) as e:
            raise ProblemNotFoundError(f"{beside}: line {number} is no workload: {e}") from e
        if any(item.type == "safetensors" for item in workload.inputs.values()):
            stored += 1
        else:
            possible.append(workload)
    return possible, f"{stored} need tensors stored elsewhere"


def _comparator(prefix: str, workloads: list[_Workload]) -> Comparator:
    """By the strictest numbers of all workloads; what SOL-ExecBench leaves out has a default there."""
    defaults = _SOL_TOLERANCE if prefix == SOL else {}
    given = [
        defaults | {name: float(value) for name, value in workload.tolerance.items() if value is not None}
        for workload in workloads
    ]
    strictest = {}
    for own, (name, choose) in _TOLERANCES.items():
        if values := [one[own] for one in given if own in one]:
            strictest[name] = choose(values)
    return Comparator("matched", strictest)


def _cases(definition: _Definition, workloads: list[_Workload]) -> list[Case]:
    constants = [_constants(definition, workload) for workload in workloads]
    sizes = [prod(value for value in workload.axes.values() if value > 0) for workload in workloads]
    timed = sizes.index(max(sizes))
    return [Case(str(index), "perf" if index == timed else "public", values) for index, values in enumerate(constants)]


def _constants(definition: _Definition, workload: _Workload) -> dict[str, Any]:
    scalars = {name: item.value for name, item in workload.inputs.items() if item.type == "scalar"}
    return {**{name: workload.axes[name] for name in _variable(definition) if name in workload.axes}, **scalars}


def _variable(definition: _Definition) -> list[str]:
    return [name for name, axis in definition.axes.items() if axis.type == "var"]


_HEAD = '''
import torch

{constants}


class Model(torch.nn.Module):
    """Calls `run`, the definition's reference."""

    def forward(self, {names}):
        return run({names})


'''
_RANDOM = '''
def _random(name, shape, dtype):
    """Normal numbers; small ones for matrices of weights, positive ones for what is a scale; any integers."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape) == 1
    if not dtype.is_floating_point:
        limit = 128 if dtype is torch.int8 else 1024
        return torch.randint(-limit, limit, shape, dtype=dtype)
    x = torch.randn(shape)
    if len(shape) > 1 and name.rstrip("0123456789").endswith(("weight", "proj")):
        x = x / shape[-1] ** 0.5
    elif name.endswith(("scale", "rstd", "std", "variance", "var", "norm_weight")) or name == "weight":
        x = 0.5 + x.abs()
    return (x.clamp(-2.0, 2.0) if dtype.itemsize == 1 else x).to(dtype)
'''


def _source(definition: _Definition, workload: _Workload) -> str:
    names = ", ".join(definition.inputs)
    constants = [f"{name} = {value!r}" for name, value in _constants(definition, workload).items()]
    constants += [f"{name} = {axis.value!r}" for name, axis in definition.axes.items() if axis.type == "const"]
    constants += [f"{name} = {axis.expression}" for name, axis in definition.axes.items() if axis.type == "expr"]
    parts = [definition.reference.strip(), _HEAD.format(constants="\n".join(constants), names=names).strip()]
    if definition.custom_inputs_entrypoint is not None:
        axes = ", ".join(f'"{name}": {name}' for name in definition.axes)
        scalars = "".join(f', "{name}": {name}' for name in definition.inputs if _is_scalar(workload, name))
        parts.append(
            f"def get_inputs():\n    inputs = {definition.custom_inputs_entrypoint}({{{axes}{scalars}}}, "
            f"torch.get_default_device())\n    return [inputs[name] for name in {list(definition.inputs)!r}]"
        )
    else:
        drawn = ", ".join(_drawn(name, item, workload) for name, item in definition.inputs.items())
        parts += [_RANDOM.strip(), f"def get_inputs():\n    return [{drawn}]"]
    parts.append("def get_init_inputs():\n    return []")
    return "\n\n\n".join(parts) + "\n"


def _is_scalar(workload: _Workload, name: str) -> bool:
    return name in workload.inputs and workload.inputs[name].type == "scalar"


def _drawn(name: str, item: _Tensor, workload: _Workload) -> str:
    if _is_scalar(workload, name) or item.shape is None:
        return name
    return f'_random("{name}", ({"".join(f"{axis}, " for axis in item.shape)}), torch.{item.dtype})'


def _adapter(definition: _Definition) -> str:
    """`ModelNew` around a `run` that returns its outputs or is given them."""
    names = ", ".join(definition.inputs)
    lines = [
        f"{axis} = {name}.shape[{position}]"
        for axis, (name, position) in _bindings(definition).items()
        if not axis.isdigit()
    ]
    fixed = [f"{name} = {axis.value!r}" for name, axis in definition.axes.items() if axis.type == "const"]
    computed = [f"{name} = {axis.expression}" for name, axis in definition.axes.items() if axis.type == "expr"]
    first = next((name for name, item in definition.inputs.items() if item.shape is not None), None)
    device = f"{first}.device" if first is not None else "None"
    outputs = ", ".join(
        f"torch.empty(({''.join(f'{axis}, ' for axis in item.shape or [])}), dtype=torch.{item.dtype}, device={device})"
        for item in definition.outputs.values()
    )
    body = "\n        ".join([*lines, *fixed, *computed])
    count = len(definition.inputs)
    return f'''
import inspect

import torch


class ModelNew(torch.nn.Module):
    """Calls `run`, and gives it its outputs where it takes more than the {count} inputs."""

    def forward(self, {names}):
        if len(inspect.signature(run).parameters) == {count}:
            return run({names})
        {body}
        outputs = [{outputs}]
        run({names}, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
'''


def _bindings(definition: _Definition) -> dict[str, tuple[str, int]]:
    """For each axis that varies, an input and the dimension that shows it."""
    found: dict[str, tuple[str, int]] = {}
    variable = set(_variable(definition))
    for name, item in definition.inputs.items():
        for position, axis in enumerate(item.shape or []):
            if axis in variable:
                found.setdefault(axis, (name, position))
    return found
