"""The prompt's text, against a golden file, and what it may and may not say."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from kbenv.prompt import render_prompt
from kbenv.prompts import render
from kbenv.protocol import D1_D4, get_protocol
from tests.fakes import make_problem

GOLDEN = Path(__file__).parent / "golden" / "single_turn_cuda.md"
SIZED = "import torch\n\nROWS = 8\nSIZES = {'gpu': {'ROWS': 8}, 'cpu': {'ROWS': 3}}\n"


def test_the_prompt_is_the_golden_one() -> None:
    text = render_prompt(make_problem(), get_protocol("verified"), "cuda:0", "auto")
    assert text == GOLDEN.read_text(encoding="utf-8"), "delete the golden file's text and copy the new one if intended"


def test_the_prompt_shows_the_sizes_of_the_device() -> None:
    problem = make_problem(source=SIZED, sizes={"gpu": {"ROWS": 8}, "cpu": {"ROWS": 3}})
    assert "ROWS = 3\n" in render_prompt(problem, get_protocol(), "cpu")
    assert "ROWS = 8\n" in render_prompt(problem, get_protocol(), "cuda:1")


def test_the_prompt_says_that_hidden_inputs_exist_and_not_which() -> None:
    text = render_prompt(make_problem(), get_protocol("verified"), "cpu")
    assert "further inputs that are not shown here" in text
    for hidden in D1_D4:
        assert hidden.name not in text
    assert "not shown" not in render_prompt(make_problem(), get_protocol("kernelbench"), "cpu")


@pytest.mark.parametrize(("name", "tolerance"), [("verified", "0.001"), ("kernelbench", "0.0001")])
def test_the_prompt_states_the_protocols_tolerance(name: str, tolerance: str) -> None:
    text = render_prompt(make_problem(), get_protocol(name), "cpu")
    assert f"<= {tolerance} + {tolerance} * |reference|" in text


def test_the_prompt_states_the_tf32_baseline_on_a_gpu() -> None:
    assert "in eager mode with TF32 on" in render_prompt(make_problem(), get_protocol("verified"), "cuda:0")
    assert "default TF32" in render_prompt(make_problem(), get_protocol("kernelbench"), "cuda:0")
    assert "TF32" not in render_prompt(make_problem(), get_protocol("verified"), "cpu")


def test_the_prompt_asks_for_the_devices_kernels_or_for_the_backend() -> None:
    cpu = render_prompt(make_problem(), get_protocol(), "cpu")
    assert "Device: CPU\n" in cpu
    assert "ctypes" in cpu
    assert "Triton" not in cpu
    cuda = render_prompt(make_problem(), get_protocol(), "cuda:0")
    assert "Device: CUDA GPU\n" in cuda
    assert "Triton" in cuda
    assert "ctypes" not in cuda
    triton = render_prompt(make_problem(), get_protocol(), "cuda:0", "triton")
    assert "Kernels: Triton" in triton
    assert "cuda_sources" not in triton


def test_the_prompt_says_whether_a_custom_kernel_is_required() -> None:
    wanted = get_protocol(require_custom_kernel=True)
    assert "without one the answer is not credited" in render_prompt(make_problem(), wanted, "cpu")
    assert "without one the answer" not in render_prompt(make_problem(), get_protocol(), "cpu")


def test_the_prompt_names_the_precision() -> None:
    assert "Precision: bf16 (" in render_prompt(make_problem(), get_protocol(precision="bf16"), "cpu")


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("system.j2")


def test_code_is_not_escaped_for_browsers() -> None:
    problem = make_problem(source="a = 1 < 2 & 3\n")
    assert "a = 1 < 2 & 3" in render_prompt(problem, get_protocol(), "cpu")


def test_the_system_prompt_tells_of_turns_only_where_there_are_some() -> None:
    assert "<done/>" not in render("system.j2", turns=1)
    assert "at most 4 answers" in render("system.j2", turns=4)
