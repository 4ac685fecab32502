"""A backend is one declaration: it is recognised, worded and looked for by that alone."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from kbenv import doctor, evaluate
from kbenv.backends import BACKENDS, NO_BACKEND, Backend, Requirement, backend_names, backends_for, find_backend
from kbenv.prompts import render
from kbenv.provenance import custom_kernel_evidence, detect_backend
from kbenv.sandbox.confine import HEADER_FOLDERS, needed_paths
from kbenv.sandbox.process import ProcessCarrier
from tests.test_doctor import CPU_TORCH, CUDA_TORCH

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    "cute": "import cutlass\nimport cutlass.cute as cute\n\n@cute.kernel\ndef add(a):\n    pass\n",
    "tilelang": "import tilelang\n\n@tilelang.jit\ndef add(a):\n    pass\n",
    "helion": "import helion\nimport helion.language as hl\n\n@helion.kernel()\ndef add(a):\n    pass\n",
    "thunderkittens": 'CODE = """\n#include "kittens.cuh"\n__global__ void add() {}\n"""\n',
    "hip": 'CODE = """\n#include <hip/hip_runtime.h>\n__global__ void add() {}\n"""\n',
    "sycl": 'CODE = """\n#include <sycl/sycl.hpp>\n"""\n',
    "pallas": "from jax.experimental import pallas as pl\n\ny = pl.pallas_call(f)\n",
    "ascendc": 'CODE = """\n#include "kernel_operator.h"\n"""\n',
    "cuda_raw": 'import torch\n\nadd = torch.cuda._compile_kernel("__global__ void add() {}", "add")\n',
    "cuda": 'load_inline("add", cpp_sources="", cuda_sources="__global__ void add() {}")\n',
    "triton": "import triton\n\n@triton.jit\ndef add(a):\n    pass\n",
    "numba": "from numba import njit\n\n@njit\ndef add(a):\n    pass\n",
    "cpp": 'load_inline("add", cpp_sources="void add() {}")\n',
    "c": 'import ctypes\n\nadd = ctypes.CDLL("./add.so").add\n',
}


def test_every_backend_is_recognised_by_its_own_declaration() -> None:
    assert set(SOURCES) == set(backend_names())
    for name, source in SOURCES.items():
        assert detect_backend(source) == name
        assert name in custom_kernel_evidence(source)
    assert detect_backend("import torch\ny = torch.relu(x)\n") == NO_BACKEND


@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend.imports], ids=lambda b: b.name)
def test_a_word_of_a_language_that_is_not_imported_is_no_evidence(backend: Backend) -> None:
    lines = SOURCES[backend.name].splitlines()
    body = "\n".join(line for line in lines if not line.startswith(("import", "from")))
    assert backend.name not in custom_kernel_evidence(body)


def test_names_are_unique_and_each_has_words_for_a_prompt() -> None:
    assert len(set(backend_names())) == len(BACKENDS)
    for backend in BACKENDS:
        assert len(render(backend.snippet).strip()) > 5
        assert find_backend(backend.name) is backend
    assert find_backend("torch") is None


def test_prompts_offer_what_has_been_judged_and_comes_along() -> None:
    assert [backend.name for backend in BACKENDS if backend.proven is not None and not backend.offered] == [
        "cute", "tilelang", "helion", "thunderkittens", "numba",
    ]  # fmt: skip
    assert [backend.name for backend in backends_for("cuda:1")] == ["cuda_raw", "cuda", "triton"]
    assert [backend.name for backend in backends_for("cpu")] == ["cpp", "c"]


def test_the_doctor_says_what_a_backend_needs() -> None:
    lacking = Backend(
        "none", "None", "cpu", "cpu", (), "never",
        needs=(Requirement(programs=("no-such-program", "nor-this"), advice="install it"),
               Requirement(package="no-such-package", advice="install that"), Requirement(package="pytest")),
    )  # fmt: skip
    finding = doctor.check_backend(lacking, CPU_TORCH)
    assert (finding.name, finding.state) == ("backend none", "optional")
    assert "declared only" in finding.found
    assert finding.found.endswith("; lacks no-such-program or nor-this, no-such-package")
    assert finding.advice == "install it; install that"
    assert doctor.check_backend(Backend("a", "A", "cpu", "cpu", (), "now", proven="CPU"), CPU_TORCH).state == "ok"


def test_a_backend_is_not_there_without_its_device() -> None:
    gpu, amd = Backend("a", "A", "nvidia", "cuda", (), "now", proven="H200"), Backend("b", "B", "amd", None, (), "now")
    assert doctor.check_backend(gpu, CUDA_TORCH).state == "ok"
    for torch, lacks in ((CPU_TORCH, "a CUDA build of torch"), (replace(CUDA_TORCH, gpus=()), "a GPU that torch can")):
        finding = doctor.check_backend(gpu, torch)
        assert finding.state == "optional"
        assert f"lacks {lacks}" in finding.found
    for torch in (CPU_TORCH, CUDA_TORCH):
        assert "lacks a device that kbenv judges on (it has none of amd)" in doctor.check_backend(amd, torch).found


NUMBA = """
import math

import numba
import torch


@numba.njit
def softmax(x, y):
    for row in range(x.shape[0]):
        largest = x[row, 0]
        for column in range(1, x.shape[1]):
            largest = max(largest, x[row, column])
        total = 0.0
        for column in range(x.shape[1]):
            y[row, column] = math.exp(x[row, column] - largest)
            total += y[row, column]
        for column in range(x.shape[1]):
            y[row, column] /= total


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax(x.numpy(), y.numpy())
        return y
"""


def test_a_numba_kernel_is_credited_where_numba_is_installed() -> None:
    pytest.importorskip("numba")
    verdict = evaluate("core/level1/softmax", NUMBA, device="cpu", sandbox="process")
    assert verdict.credited, verdict.message
    (found,) = [check.evidence["found"] for check in verdict.checks if check.name == "custom-kernel"]
    assert found == ["numba: a Numba function"]


def test_no_backend_s_name_is_compared_outside_of_its_declaration() -> None:
    found = []
    for folder, but in (("kbenv", ()), ("agents", ("kernels",)), ("problems", ("core",)), ("sandbox", ())):
        for path in (ROOT / folder).rglob("*.py"):
            if not set(but) & set(path.parts) and path.name != "backends.py":
                found += [f"{path}:{line}" for line in compared_names(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("x = name == 'triton'", True), ("x = name in ('c', 'cpp')", True), ("x = backend == 'cuda'", True),
        ("x = self._backend != 'c'", True), ("x = device == 'cuda'", False), ("x = letter == 'c'", False),
        ("match name:\n    case 'triton': pass", True), ("x = backend.dialect == 'tiles'", False),
    ],
)  # fmt: skip
def test_a_compared_name_is_found(line: str, is_found: bool) -> None:
    assert bool(compared_names(line)) is is_found


def compared_names(source: str) -> list[int]:
    """The lines of `source` that compare something with a backend's name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            words = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & {*backend_names()}
            # "cuda" is a kind of device as well, "c" any letter
            if words - {"c", "cuda"} or (words and "backend" in ast.unparse(node)):
                found.append(getattr(node, "lineno", 0))
    return found


def test_a_folder_of_headers_that_a_language_needs_is_found_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {need.variable for backend in BACKENDS for need in backend.needs if need.variable} == set(HEADER_FOLDERS)
    for variable in HEADER_FOLDERS:
        monkeypatch.setenv(variable, str(tmp_path))
        assert ProcessCarrier()._environment()[variable] == str(tmp_path)
        assert str(tmp_path.resolve()) in needed_paths([])


def test_a_folder_that_a_language_needs_is_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = (Requirement(variable="SOME_ROOT", advice="set SOME_ROOT"),)
    backend = Backend("some", "Some", "nvidia", "cuda", (), "now", needs=needs, proven="an H200")
    for value in (None, "", str(tmp_path / "none")):
        monkeypatch.delenv("SOME_ROOT", raising=False)
        if value is not None:
            monkeypatch.setenv("SOME_ROOT", value)
        finding = doctor.check_backend(backend, CUDA_TORCH)
        assert (finding.state, finding.advice) == ("optional", "set SOME_ROOT")
        assert finding.found.endswith("lacks SOME_ROOT")
    monkeypatch.setenv("SOME_ROOT", str(tmp_path))
    assert doctor.check_backend(backend, CUDA_TORCH).state == "ok"
