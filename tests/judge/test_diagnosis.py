"""What is looked at on request, in real jobs: it comes from what the judge had built, and decides nothing.

On a GPU: `pytest -m gpu tests/judge/test_diagnosis.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbenv.evaluator import Evaluator
from kbenv.feedback import render_feedback
from kbenv.machine_code import find_tool
from kbenv.profile import code_of, render_profile
from kbenv.verdict import Status, Verdict
from tests.dumps import SASS, USAGE
from tests.judge.evaluators import make_protocol
from tests.judge.inside import RELU, SMALL_RELU
from tests.judge.test_builds import submission

HERE = Path(__file__).parents[1]
DUMP = """#!{python}
import os, sys
print({usage!r} if sys.argv[1] == "-res-usage" else {sass!r}, f"// uid {{os.geteuid()}}", sep="\\n")
"""
FAILING = "#!/bin/sh\necho \"File '$2' is not to be read\" >&2\nexit 1\n"


def open_evaluator(folder: Path, tool: str, device: str = "cpu") -> Evaluator:
    """A fresh judge that finds `tool` as cuobjdump."""
    folder.mkdir()
    path = folder / "cuobjdump"
    path.write_text(tool)
    path.chmod(0o755)
    return Evaluator(
        protocol=make_protocol("verified tight", device), device=device, sandbox="process", diagnostics=("code",)
    )


@pytest.fixture
def tool_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """To be made; it is first on the path, and its parents may be passed by other users."""
    for parent in (tmp_path, *tmp_path.parents[:2]):
        if parent.name.startswith(("test_", "pytest-")):
            parent.chmod(0o711)
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a builder has a user of its own")
def test_a_builder_reads_the_machine_code_of_what_it_built(tool_folder: Path) -> None:
    dump = DUMP.format(python=sys.executable, usage=USAGE, sass=SASS)
    with open_evaluator(tool_folder, dump) as evaluator:
        verdict = evaluator.evaluate(SMALL_RELU, submission())
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.missing == {}
    assert [kernel.short_name for kernel in code_of(verdict)] == ["matmul", "relu", "matmul"]
    assert not any(kernel.self_reported for kernel in verdict.diagnosis.code)
    assert verdict.seconds["diagnosis"] > 0


def test_a_tool_that_fails_leaves_the_verdict_as_it_is(tool_folder: Path) -> None:
    with open_evaluator(tool_folder, FAILING) as evaluator:
        verdict = evaluator.evaluate(SMALL_RELU, submission())
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.code == ()
    assert "is not to be read" in verdict.diagnosis.missing["code"]


FORGED = """
import os
import torch

folder = os.path.join(os.environ["TRITON_CACHE_DIR"], "abc")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "relu.cubin"), "w") as file:
    file.write("whatever it says")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def test_what_a_submissions_own_compiler_keeps_is_told_as_its_own_word(tool_folder: Path) -> None:
    dump = DUMP.format(python=sys.executable, usage=USAGE, sass=SASS)
    with open_evaluator(tool_folder, dump) as evaluator:
        verdict = evaluator.evaluate(SMALL_RELU, FORGED)
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.diagnosis is not None
    assert len(verdict.diagnosis.code) == 3
    assert all(kernel.self_reported for kernel in verdict.diagnosis.code)


HOSTILE = """
import torch
import kbenv_sandbox.runner.serve as serve

serve.Runner.do_read_code = lambda self, message, _: {answer}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.mark.parametrize(
    "answer",
    [
        "{'kernels': [{'name': 1}], 'reason': 5}",
        "{'kernels': 'x' * 1000}",
        "[]['nothing']",
        "__import__('os')._exit(3)",
    ],
)
def test_a_submission_that_answers_in_its_place_gains_nothing(tool_folder: Path, answer: str) -> None:
    with open_evaluator(tool_folder, FAILING) as evaluator:
        verdict = evaluator.evaluate(SMALL_RELU, HOSTILE.replace("{answer}", answer))
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.code == ()
    assert verdict.diagnosis.missing["code"]


# -- on a GPU ---------------------------------------------------------------------------------------------------------

BAD = """
import torch
from torch.utils.cpp_extension import load_inline

module = load_inline(
    "out_of_bounds", "torch::Tensor run(torch::Tensor x);", r'''
#include <torch/extension.h>
__global__ void beyond(const float *x, float *y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    y[i + (i == 5 ? (1L << 40) : 0)] = x[i];
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    beyond<<<x.numel() / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
''', functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
"""


@pytest.fixture(scope="module")
def gpu_evaluator() -> Iterator[Evaluator]:
    protocol = make_protocol("verified brisk", "cuda:0")
    wanted = ("kernels", "code", "counters", "access")
    with Evaluator(protocol=protocol, device="cuda:0", sandbox="process", diagnostics=wanted) as evaluator:  # type: ignore[arg-type]
        yield evaluator


def told(verdict: Verdict) -> str:
    return f"{verdict.message}\n{verdict.detail}\n{verdict.diagnosis}"


@pytest.mark.gpu
def test_a_cuda_extension_has_its_card_from_the_built_library(gpu_evaluator: Evaluator) -> None:
    source = (HERE / "honest" / "cuda" / "load_inline_current_stream.py").read_text()
    verdict = gpu_evaluator.evaluate(RELU, source)
    assert verdict.status is Status.PASSED, told(verdict)
    assert verdict.diagnosis is not None
    if find_tool() is None:
        assert "cuobjdump" in verdict.diagnosis.missing["code"]
        return
    kernels = code_of(verdict)
    assert kernels, told(verdict)
    assert not any(kernel.self_reported for kernel in kernels)
    assert all(kernel.registers > 0 and kernel.occupancy for kernel in kernels)
    profile = render_profile(verdict, source)
    assert profile is not None
    assert "registers a thread" in profile
    assert "Where the time goes" in profile
    assert "of the bandwidth measured here" in profile
    # Counters are told, or why they are not: the driver may refuse them to the submission's user.
    assert verdict.diagnosis.counters or verdict.diagnosis.missing["counters"]
    print(profile)
    print(verdict.diagnosis.missing, verdict.seconds)


@pytest.mark.gpu
def test_a_triton_kernel_has_its_card_from_its_own_cache(gpu_evaluator: Evaluator) -> None:
    pytest.importorskip("triton")
    source = (HERE / "honest" / "cuda" / "triton_relu.py").read_text()
    verdict = gpu_evaluator.evaluate(RELU, source)
    assert verdict.diagnosis is not None, told(verdict)
    assert all(kernel.self_reported for kernel in code_of(verdict))
    assert code_of(verdict) or "cuobjdump" in verdict.diagnosis.missing["code"], told(verdict)


BAD_IN_TRITON = (HERE / "statuses" / "cuda" / "illegal_access.py").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "kernel"), [(BAD, "beyond"), (BAD_IN_TRITON, "relu_kernel")], ids=["cuda", "triton"]
)
def test_a_bad_access_is_located_where_compute_sanitizer_is(gpu_evaluator: Evaluator, source: str, kernel: str) -> None:
    verdict = gpu_evaluator.evaluate(RELU, source)
    assert verdict.status is Status.ILLEGAL_ACCESS, told(verdict)
    assert verdict.diagnosis is not None
    feedback = render_feedback(verdict)
    print(feedback, verdict.seconds)
    if verdict.diagnosis.access is None:
        assert verdict.diagnosis.missing["access"], told(verdict)
        return
    assert kernel in verdict.diagnosis.access
    assert "Invalid __global__" in feedback
