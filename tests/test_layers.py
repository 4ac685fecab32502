"""Layers import downwards only; what runs inside a sandbox stands alone; nothing anywhere unpickles."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbenv.sandbox.docker import HOST_MODULES

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("agents", "problems", "prompts", "sandbox")

LAYERS = (
    {
        "kbenv.__main__", "kbenv.cli", "kbenv.compat", "kbenv.doctor", "kbenv.engine_finding", "kbenv.finding",
        "kbenv.serve", "kbenv.adapters", "kbenv.report",
    },
    {"kbenv.agents"},
    {"kbenv.env", "kbenv.vector", "kbenv.workbench"},
    {"kbenv.pool"},
    {"kbenv.evaluator"},
    {
        "kbenv.audit", "kbenv.audit_fact", "kbenv.baseline", "kbenv.build_worker", "kbenv.case", "kbenv.category",
        "kbenv.corpus", "kbenv.diagnosis", "kbenv.extraction",
        "kbenv.feedback", "kbenv.gpu", "kbenv.machine_code", "kbenv.metrics", "kbenv.profile", "kbenv.prompt",
        "kbenv.provenance", "kbenv.record", "kbenv.repro", "kbenv.reward", "kbenv.screen",
        "kbenv.screen_forward", "kbenv.screen_kernel", "kbenv.screen_source", "kbenv.spaces",
        "kbenv.store", "kbenv.trajectory",
    },
    {"kbenv.sandbox"},
    {"kbenv.verdict"},
    {"kbenv.backends", "kbenv.problems", "kbenv.prompts", "kbenv.protocol"},
    {"kbenv.errors"},
)  # fmt: skip
"""From the top down. Imports may go within a layer and down; the package `kbenv` itself stands above."""

INSIDE = ("boot", "buffers", "cgroup", "confine", "layout", "seccomp", "wire", "zygote", "judge", "runner")
"""Of kbenv.sandbox: what a sandbox's own interpreter runs, without kbenv."""
INSIDE_MAY_IMPORT = {"torch", "cuda"}
PICKLING = {
    "_pickle", "cloudpickle", "copyreg", "dill", "joblib", "marshal", "multiprocessing", "pickle", "shelve",
    "torch.multiprocessing", "xmlrpc",
}  # fmt: skip
UNPICKLING_CALLS = {("torch", "load"), ("torch", "save"), ("np", "load"), ("numpy", "load")}


@dataclass(frozen=True)
class Import:
    """One import statement's target; `level` counts the leading dots."""

    target: str
    level: int
    line: int


def source_files() -> dict[str, Path]:
    """Every module of the package by its name, each once (kbenv/agents and so on are links)."""
    files = [path for path in (ROOT / "kbenv").glob("*.py")]
    for folder in ("adapters", "cli", "compat"):
        files += [path for path in (ROOT / "kbenv" / folder).rglob("*.py")]
    for folder in LINKED:
        files += [path for path in (ROOT / folder).rglob("*.py") if not is_problem(path)]
    return {module_name(path): path for path in files}


def is_problem(path: Path) -> bool:
    """Our own problems are data in KernelBench's format, not modules."""
    return path.is_relative_to(ROOT / "problems" / "core")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "kbenv" else ("kbenv", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_in(source: str) -> Iterator[Import]:
    """Every import, those inside functions and under TYPE_CHECKING included; `from a import b` counts as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, 0, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(".".join(filter(None, (node.module, alias.name))), node.level, node.lineno)


def layer_of(name: str) -> int | None:
    """The number of the layer that a module or one of its parents is in."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for number, layer in enumerate(LAYERS):
            if ".".join(parts[:length]) in layer:
                return number
    return None


def upward_imports(name: str, source: str) -> list[str]:
    own = layer_of(name)
    assert own is not None, f"{name} is in no layer: give it one in LAYERS"
    found = []
    for item in imports_in(source):
        if item.level == 0 and item.target.split(".")[0] == "kbenv":
            other = layer_of(item.target)
            if other is None or other < own:
                found.append(f"{name}:{item.line} imports {item.target}")
    return found


def foreign_imports(name: str, source: str) -> list[str]:
    allowed = sys.stdlib_module_names | INSIDE_MAY_IMPORT
    return [
        f"{name}:{item.line} imports {item.target}"
        for item in imports_in(source)
        if item.level == 0 and item.target.split(".")[0] not in allowed
    ]


def pickling(name: str, source: str) -> list[str]:
    found = [
        f"{name}:{item.line} imports {item.target}"
        for item in imports_in(source)
        if item.level == 0 and any(item.target == module or item.target.startswith(f"{module}.") for module in PICKLING)
    ]
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        if (node.value.id, node.attr) in UNPICKLING_CALLS:
            found.append(f"{name}:{node.lineno} uses {node.value.id}.{node.attr}")
    return found


MODULES = source_files()
WITHIN_LAYERS = sorted(set(MODULES) - {"kbenv"})
WITHIN_SANDBOX = [name for name in WITHIN_LAYERS if name.split(".")[1:3][:1] == ["sandbox"] and name.split(".")[2:3]]


@pytest.mark.parametrize("name", WITHIN_LAYERS)
def test_layers_import_downwards_only(name):
    assert upward_imports(name, MODULES[name].read_text()) == []


@pytest.mark.parametrize("name", [name for name in WITHIN_SANDBOX if name.split(".")[2] in INSIDE])
def test_what_runs_inside_a_sandbox_stands_alone(name):
    assert foreign_imports(name, MODULES[name].read_text()) == []


def test_every_module_of_the_sandbox_is_known_to_run_inside_or_outside():
    outside = {name.split(".")[2] for name in WITHIN_SANDBOX} - set(INSIDE)
    assert outside == set(HOST_MODULES)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_nothing_pickles_or_unpickles(name):
    assert pickling(name, MODULES[name].read_text()) == []


def test_the_folders_of_the_package_are_the_relative_links_that_packaging_needs():
    for folder in LINKED:
        link = ROOT / "kbenv" / folder
        assert link.is_symlink()
        assert link.readlink() == Path("..") / folder


def test_a_planted_violation_is_found():
    lazy = "def f():\n    from kbenv.agents import Agent\n"
    assert upward_imports("kbenv.env", lazy) == ["kbenv.env:2 imports kbenv.agents.Agent"]
    assert upward_imports("kbenv.protocol", "from kbenv import evaluate") == ["kbenv.protocol:1 imports kbenv.evaluate"]
    assert upward_imports("kbenv.cli.run", lazy) == []
    assert foreign_imports("x", "import numpy\nfrom kbenv import errors\nfrom . import wire\nimport os.path\n") == [
        "x:1 imports numpy",
        "x:2 imports kbenv.errors",
    ]
    planted = "from pickle import loads\nimport torch.multiprocessing as mp\nweights = torch.load('w.pt')\n"
    assert len(pickling("x", planted)) == 3
    assert pickling("x", "import json\ntorch.frombuffer(b'')\n") == []
