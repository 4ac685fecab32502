"""Every answer of the library of skills is right, on small sizes.

Those in C are tried on the CPU, those in Triton in its interpreter or on a GPU, those in CUDA on a GPU.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.cpp_extension import CUDA_HOME

from kbenv.agents.skills.library import KERNELS, load_library
from kbenv.problems import load_problem

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

SIZES = {
    "core/level1/relu": {"ROWS": 6, "COLUMNS": 1037},
    "core/level1/softmax": {"ROWS": 37, "COLUMNS": 128},
    "core/level1/huber_rows": {"ROWS": 7, "COLUMNS": 1536},
    "core/level1/layer_norm": {"ROWS": 5, "COLUMNS": 1536},
    "core/level1/matmul": {"M": 256, "K": 128, "N": 384},
    "core/level2/conv_bias_relu": {"BATCH": 3, "CHANNELS_IN": 4, "CHANNELS_OUT": 6, "HEIGHT": 9, "WIDTH": 11},
    "core/level2/linear_gelu_scale": {"BATCH": 128, "FEATURES_IN": 64, "FEATURES_OUT": 256},
    "core/level2/matmul_bias_swish_row_max": {"BATCH": 128, "FEATURES_IN": 64, "FEATURES_OUT": 1024},
    "core/level2/residual_rms_norm": {"ROWS": 11, "COLUMNS": 256},
    "core/level4/selective_scan": {"BATCH": 2, "STEPS": 7, "WIDTH": 80, "STATE": 8},
    "core/level3/attention_block": {"BATCH": 2, "TOKENS": 128, "WIDTH": 64, "HEADS": 2},
}
ANSWERS = sorted(
    {(skill.pair.problem, kernel) for skill in load_library() for kernel in (skill.pair.before, skill.pair.after)}
)
TRITON = sorted(kernel for _, kernel in ANSWERS if "import triton" in (KERNELS / f"{kernel}.py").read_text())


def largest_excess(problem: str, kernel: str, device: str) -> float:
    """By how much any element of any output is outside of 1e-3; at most 0 when all are right."""
    reference: dict[str, Any] = {}
    exec(load_problem(problem).source, reference)
    reference.update(SIZES[problem])
    spec = importlib.util.spec_from_file_location(kernel, KERNELS / f"{kernel}.py")
    assert spec is not None
    assert spec.loader is not None
    answer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(answer)
    torch.manual_seed(0)
    models = [made(*reference["get_init_inputs"]()).to(device) for made in (reference["Model"], answer.ModelNew)]
    models[1].load_state_dict(models[0].state_dict())
    inputs = [value.to(device) for value in reference["get_inputs"]()]
    with torch.no_grad():
        expected, found = (outputs if isinstance(outputs, tuple) else (outputs,) for outputs in
                           (model(*[value.clone() for value in inputs]) for model in models))  # fmt: skip
    assert [value.shape for value in expected] == [value.shape for value in found]
    return max(float(((f - e).abs() - 1e-3 - 1e-3 * e.abs()).max()) for e, f in zip(expected, found, strict=True))


ON_A_CPU = [answer for answer in ANSWERS if "_cuda_" not in answer[1] and answer[1] not in TRITON]


@pytest.mark.parametrize(("problem", "kernel"), ON_A_CPU)
def test_it_is_right_on_a_cpu(problem: str, kernel: str) -> None:
    assert largest_excess(problem, kernel, "cpu") <= 0


@pytest.mark.gpu
@pytest.mark.parametrize(("problem", "kernel"), [answer for answer in ANSWERS if "_c_" not in answer[1]])
def test_it_is_right_on_a_gpu(problem: str, kernel: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    if "_cuda_" in kernel and (CUDA_HOME is None or not os.path.exists(f"{CUDA_HOME}/bin/nvcc")):
        pytest.skip("no nvcc")
    assert largest_excess(problem, kernel, "cuda") <= 0


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_those_in_triton_are_right_in_its_interpreter() -> None:
    code = (
        "from tests.test_skill_kernels import *\n"
        "print(max(largest_excess(problem, kernel, 'cpu') for problem, kernel in ANSWERS if kernel in TRITON) <= 0)"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    root = str(KERNELS.resolve().parent.parent.parent)
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr[-2000:]
