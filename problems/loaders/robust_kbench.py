"""robust-kbench: `tasks/**/func_forward.py` with `config_forward.json`, and `func_backward.py` for backward passes.

The task in `tasks/layernorm` is "robust-kbench/layernorm", its backward pass "robust-kbench/layernorm/backward". The
settings in the JSON are the problem's cases: the single one is timed, the several ones are checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.problem import Case, Contract, Origin, Problem

PREFIX = "robust-kbench/"
FORMAT = "robust-kbench: func_forward.py (forward_fn, Model, get_inputs) and config_forward.json, likewise backward"

_SETTINGS = """
INPUT_SETTING = {}
INIT_SETTING = {}
"""
_FORWARD = """
_get_inputs_of_setting = get_inputs


def get_inputs():
    inputs = _get_inputs_of_setting(**INPUT_SETTING)
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def get_init_inputs():
    return dict(INIT_SETTING)
"""
_BACKWARD = '''
_get_inputs_of_setting = get_inputs


class Model(nn.Module):
    """The gradients of `ForwardModel`: of its floating inputs and of its parameters, given the output's."""

    def __init__(self, **setting):
        super().__init__()
        self.forward_model = ForwardModel(**setting)

    def forward(self, grad_output, *inputs):
        """Returns the gradients in the order of the inputs, then of the parameters, of those that matter."""
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
            output = self.forward_model(*leaves)
            wanted = [leaf for leaf in leaves if leaf.requires_grad] + list(self.forward_model.parameters())
            found = torch.autograd.grad(output, wanted, grad_output, allow_unused=True)
            return [gradient for gradient in found if gradient is not None]


def get_inputs():
    inputs = [value.detach() for value in _get_inputs_of_setting(**INPUT_SETTING)]
    with torch.no_grad():
        output = ForwardModel(**INIT_SETTING).to(inputs[0].device)(*inputs)
    return [torch.randn_like(output), *inputs]


def get_init_inputs():
    return dict(INIT_SETTING)
'''
_URL = "https://github.com/SakanaAI/robust-kbench"
_LAYOUTS = ("tasks/*/func_*.py", "tasks/*/*/*/func_*.py")


class _Settings(BaseModel):
    single_init_configs: list[dict[str, Any]]
    single_input_configs: list[dict[str, Any]]
    single_shared_configs: list[dict[str, Any]]
    multi_init_configs: list[dict[str, Any]]
    multi_input_configs: list[dict[str, Any]]
    multi_shared_configs: list[dict[str, Any]]


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set, or one of its tasks."""
    return next(folder.rglob("func_forward.py"), None) is not None


def find(folder: Path) -> Mapping[str, Path]:
    """Each task's file by its id."""
    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    found = {}
    for path in sorted(root.rglob("func_*ward.py")):
        name = path.parent.relative_to(root).as_posix() if path.parent != root else folder.name
        found[f"{PREFIX}{name}" + ("/backward" if path.stem == "func_backward" else "")] = path
    return found


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file and its settings. Raises ProblemNotFoundError where one cannot be read."""
    backward = path.stem == "func_backward"
    text = file.read_text(path).rstrip()
    if backward:
        text = re.sub(r"\bModel\b", "ForwardModel", text)  # in its own `super(Model, self)` as well
    machinery = _BACKWARD if backward else _FORWARD
    name = id.removeprefix(PREFIX)
    return file.from_source(
        f"{text}\n\n{_SETTINGS}{machinery}", path=path, id=id, name=name, level=_level(path),
        cases=tuple(_cases(path.with_name(path.name.replace("func_", "config_").replace(".py", ".json")))),
        contract=Contract(reference="backward" if backward else "module"),
        tags=("backward",) if backward else (),
        origin=Origin("robust-kbench", _URL, "Apache-2.0", version=commit_of(path, *_LAYOUTS)),
    )  # fmt: skip


def _level(path: Path) -> int | None:
    names = [part.removeprefix("level_") for part in path.parts if part.startswith("level_")]
    return int(names[0]) if names and names[0].isdigit() else None


def _cases(path: Path) -> list[Case]:
    """The timed setting first, then those that are checked, each once."""
    words = "single_ and multi_ settings of init, input and shared, each a list of {name: value}"
    found = file.validate(_Settings, file.read_json(path), path, words)
    cases: list[Case] = []
    for role, lists in (
        ("perf", (found.single_init_configs, found.single_input_configs, found.single_shared_configs)),
        ("public", (found.multi_init_configs, found.multi_input_configs, found.multi_shared_configs)),
    ):
        for init, inputs, shared in product(*lists):
            constants: dict[str, Any] = {"INPUT_SETTING": {**inputs, **shared}, "INIT_SETTING": {**init, **shared}}
            if constants not in [case.constants for case in cases]:
                cases.append(Case(str(len(cases)), "perf" if role == "perf" else "public", constants))
    if not cases:
        raise ProblemNotFoundError(f"{path}: expected {words}; found a list without any")
    return cases
