"""The prompt's text, against a golden file, and what it may and may not say."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
import torch

import kbenv.prompts
from kbenv.agents import Turn
from kbenv.backends import BACKENDS, Backend
from kbenv.errors import UsageError
from kbenv.gpu import GPUS, REGISTERS, facts_about, find_gpu
from kbenv.machine_code import MULTIPROCESSORS
from kbenv.problems import load_problem
from kbenv.problems.loaders import file
from kbenv.problems.problem import Case, Comparator, Contract, Problem
from kbenv.prompt import EXAMPLE_LANGUAGES, EXAMPLES, PromptOptions, nearest_example, render_prompt
from kbenv.prompts import render
from kbenv.protocol import D1_D4, get_protocol
from kbenv.provenance import detect_backend
from kbenv.sandbox.runner.truncated import truncated_products
from kbenv.verdict import Hardware
from tests.fakes import make_problem, make_verdict

GOLDEN = Path(__file__).parent / "golden" / "prompts"
SIZED = "import torch\n\nROWS = 8\nSIZES = {'gpu': {'ROWS': 8}, 'cpu': {'ROWS': 3}}\n"


def golden(name: str, text: str) -> None:
    """Compares with the golden file; KBENV_UPDATE_GOLDEN=1 writes it, to be read in the diff."""
    path = GOLDEN / name
    if os.environ.get("KBENV_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if intended: KBENV_UPDATE_GOLDEN=1, and read the difference"


def machine(name: str, device: str = "cuda:0", **overrides: Any) -> Hardware:
    fields: dict[str, Any] = {
        "device": device, "name": name, "memory_bytes": 143_771_000_000, "driver": "580", "multiprocessors": 132,
        "l2_bytes": 62_914_560, "cpu": "some CPU", "cpu_count": 8,
    }  # fmt: skip
    return Hardware(**(fields | overrides))


H100 = PromptOptions(hardware=facts_about("H100"))
DETECTED = PromptOptions(hardware=facts_about(machine("NVIDIA Z9000")))
CPU = PromptOptions(hardware=facts_about(machine("Some CPU", "cpu")), concepts=True)


@pytest.mark.parametrize(
    ("name", "protocol", "device", "backend", "options"),
    [
        ("cuda", "verified", "cuda:0", "auto", PromptOptions()),
        ("cuda-hardened", "hardened", "cuda:0", "auto", PromptOptions()),
        ("cuda-kernelbench", "kernelbench", "cuda:0", "cuda", PromptOptions()),
        ("cpu", "verified", "cpu", "auto", PromptOptions()),
        ("cuda-one-shot", "verified", "cuda:0", "auto", PromptOptions(shots="one")),
        ("cuda-few-shot", "verified", "cuda:0", "cuda", PromptOptions(shots="few")),
        ("cuda_raw-few-shot", "verified", "cuda:0", "cuda_raw", PromptOptions(shots="few")),
        ("triton-few-shot", "verified", "cuda:0", "triton", PromptOptions(shots="few")),
        ("cpp-few-shot", "verified", "cpu", "cpp", PromptOptions(shots="few")),
        ("c-few-shot", "verified", "cpu", "c", PromptOptions(shots="few")),
        ("cuda-h100-concepts", "verified", "cuda:0", "auto", PromptOptions(hardware=H100.hardware, concepts=True)),
        ("cuda-detected", "verified", "cuda:0", "auto", DETECTED),
        ("cpu-detected-concepts", "verified", "cpu", "auto", CPU),
        ("cuda-blind", "verified", "cuda:0", "auto", PromptOptions(view="blind")),
    ],
)
def test_the_prompt_is_the_golden_one(
    name: str, protocol: str, device: str, backend: str, options: PromptOptions
) -> None:
    text = render_prompt(make_problem(), get_protocol(protocol), device, backend, options)
    golden(f"{name}.md", text)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_prompt_for_every_backend_is_the_golden_one(backend: Backend) -> None:
    device = "cpu" if backend.device == "cpu" else "cuda:0"
    text = render_prompt(make_problem(), get_protocol("verified"), device, backend.name)
    golden(f"backend-{backend.name}.md", text)


CASES = (
    Case("small", "public", {"N": 64}), Case("secret", "hidden", {"N": 77}), Case("large", "perf", {"N": 4096}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cuda-cases", make_problem(cases=CASES, contract=Contract(in_place=(0,)))),
        ("cuda-exact", make_problem(contract=Contract(comparator=Comparator("exact")))),
        ("cuda-custom", make_problem(contract=Contract(comparator=Comparator("custom")))),
        ("cuda-distribution", make_problem(contract=Contract(comparator=Comparator("distribution")))),
        (
            "cuda-metrics",
            make_problem(contract=Contract(comparator=Comparator("metrics", {"cosine_sim": 0.99, "rmse": 0.1}))),
        ),
    ],
)
def test_what_a_set_asks_is_told_as_in_the_golden_one(name: str, problem: Problem) -> None:
    text = render_prompt(problem, get_protocol("hardened"), "cuda:0")
    golden(f"{name}.md", text)
    assert "77" not in text


def test_a_set_s_own_tolerance_is_told_where_it_holds() -> None:
    comparator = Comparator("matched", {"absolute": 0.25, "share": 0.95, "cap": 2.0})
    problem = replace(make_problem(), contract=Contract(comparator=comparator))
    text = render_prompt(problem, get_protocol("kernelbench"), "cpu")
    assert "<= 0.25 + 0.0001 * |reference|. Of each output at least 95% of the elements must be right. " in text
    assert "No element may be off by more than 2. It holds in every timed call too" in text
    text = render_prompt(problem, get_protocol("verified"), "cpu")
    assert "<= 0.001 + 0.001 * |reference|. Every element must be right, in every timed call too" in text


def test_evaluation_mode_is_told() -> None:
    for mode in ("train", "eval"):
        problem = replace(make_problem(), contract=Contract(mode=mode))
        assert ("(`.eval()`)" in render_prompt(problem, get_protocol("hardened"), "cpu")) is (mode == "eval")


def test_in_half_precision_it_is_not_half_precision_that_is_ruled_out() -> None:
    text = render_prompt(make_problem(), get_protocol("hardened", "bf16"), "cuda:0")
    golden("cuda-bf16.md", text)
    assert "half precision is not" not in text


RIGHT = make_verdict(speedup=2.0)
TURN = Turn(
    0, 0, "# Task", "An answer.", "x = 1\n", make_verdict(speedup=1.5), 0.6, feedback="PASSED: well done.\nMore."
)

UNTOLD = replace(TURN, feedback=None)
LATE = replace(TURN, feedback="TIMEOUT: x\ny")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("system-one", {"turns": 1}),
        ("system-four", {"turns": 4}),
        ("turn-first", {"feedback": "F", "turn": 2, "max_turns": 5, "best": None, "done": "<done/>"}),
        (
            "turn-best",
            {"feedback": "F", "turn": 2, "max_turns": 5, "best": RIGHT, "done": "<done/>"},
        ),
        ("unseen", {}),
        ("go_on", {}),
        ("left_out-one", {"said": "# Task", "first": 1, "last": 1, "summary": None}),
        ("left_out-summary", {"said": "# Task", "first": 1, "last": 3, "summary": "Nothing worked."}),
        ("summary-first", {"task": "# Task", "summary": None, "first": 1, "turns": [TURN]}),
        (
            "summary-again",
            {"task": "# Task", "summary": "S", "first": 4, "turns": [TURN, UNTOLD]},
        ),
        ("refine-credited", {"feedback": "F", "parents": 1, "credited": True, "others": [2.5, 1.25]}),
        ("refine-failed", {"feedback": "F", "parents": 1, "credited": False, "others": []}),
        ("refine-two", {"feedback": "F", "parents": 2, "credited": True, "others": []}),
        ("reflect-first", {"task": "# Task", "turn": TURN, "earlier": []}),
        ("reflect-again", {"task": "# Task", "turn": replace(TURN, answer=""), "earlier": ["Do this.", "Do that."]}),
        ("repair-reviewed", {"feedback": "F", "reflection": "R", "anew": False, "attempts": 1}),
        ("repair-anew", {"feedback": "F", "reflection": "", "anew": True, "attempts": 4}),
        ("optimise-one", {"task": "# Task", "turns": [TURN], "failed": []}),
        (
            "optimise-failed",
            {"task": "# Task", "turns": [TURN, TURN], "failed": [LATE]},
        ),
        ("tool", {}),
    ],
)
def test_every_other_text_is_the_golden_one(name: str, values: dict[str, Any]) -> None:
    golden(f"{name}.md", render(f"{name.split('-')[0]}.j2", **values))


def test_every_template_has_a_golden_file() -> None:
    folder = Path(kbenv.prompts.__file__).parent
    templates = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.j2")}
    inside = {
        "single_turn",
        "hardware",
        "concepts",
        "examples",
        "skills_features",
        "skills_moves",
    }  # included elsewhere
    feedback = {"feedback", "anatomy", "profile"}  # tests/golden/feedback
    scripts = {"repro"}  # no model reads it
    texts = {path.stem for path in GOLDEN.glob("*.md")}
    covered = {text.split("-")[0] for text in texts} - {"backend"}
    for text in texts:
        if text.startswith("backend-"):
            name = text.removeprefix("backend-")
            covered |= {f"backends/{name}", f"rules/{name}"}
    assert templates - inside - feedback - scripts <= covered
    assert {f"backend-{backend.name}" for backend in BACKENDS} == {text for text in texts if text[:8] == "backend-"}


@pytest.mark.parametrize(
    ("problem", "nearest"),
    [
        ("core/level1/relu", "elementwise"),
        ("core/level1/softmax", "elementwise"),
        ("core/level1/layer_norm", "elementwise"),
        ("core/level1/matmul", "matmul"),
        ("core/level2/conv_bias_relu", "matmul"),
        ("core/level2/linear_gelu_scale", "matmul"),
        ("core/level3/attention_block", "attention"),
        ("core/level3/mlp_block", "matmul"),
        (make_problem(category="Flash attention"), "attention"),
        (make_problem(category="convolution"), "matmul"),
        (make_problem(category="fusion"), "elementwise"),
    ],
)
def test_one_shot_takes_the_example_nearest_to_the_problem(problem: Problem | str, nearest: str) -> None:
    assert nearest_example(load_problem(problem) if isinstance(problem, str) else problem) == nearest


@pytest.mark.parametrize("backend", EXAMPLE_LANGUAGES)
def test_every_example_is_python_that_defines_model_new_and_is_in_its_language(backend: str) -> None:
    folder = Path(kbenv.prompts.__file__).parent / "examples"
    for name in EXAMPLES:
        source = (folder / name / f"{backend}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
        assert detect_backend(source) == backend
        reference = file.read(folder / name / "reference.py", id=name, name=name, level=None)
        assert set(reference.sizes) == {"cpu", "gpu"}


@pytest.mark.parametrize(("name", "fewer"), [("matmul", {"M": 64}), ("attention", {"BATCH": 1, "HEADS": 2})])
@pytest.mark.parametrize("factor", [1.0, 3.0, 0.01, -1.0])  # of D1 to D4
def test_operands_as_tensor_cores_cut_them_keep_an_example_within_the_tolerance(
    name: str, fewer: dict[str, int], factor: float
) -> None:
    """Else the kernel that a model is told to learn from would be refused on a GPU."""
    path = Path(kbenv.prompts.__file__).parent / "examples" / name / "reference.py"
    reference: dict[str, Any] = {}
    exec(path.read_text(encoding="utf-8"), reference)
    reference |= fewer  # of independent results
    torch.manual_seed(0)
    inputs = [factor * value for value in reference["get_inputs"]()]
    model = reference["Model"]()
    exact = model(*(value.double() for value in inputs))
    with truncated_products() as mode:
        found = model(*inputs)
    assert mode.products
    tolerance = get_protocol("verified").tolerance
    assert tolerance.absolute is not None
    assert tolerance.relative is not None
    assert float(((found - exact).abs() - tolerance.relative * exact.abs()).max()) < 0.8 * tolerance.absolute


def test_every_file_of_an_example_is_in_a_language_that_examples_are_known_to_have() -> None:
    folder = Path(kbenv.prompts.__file__).parent / "examples"
    for name in EXAMPLES:
        assert {path.stem for path in (folder / name).glob("*.py")} == {"reference", *EXAMPLE_LANGUAGES}
    anything = render_prompt(make_problem(), get_protocol(), "cuda:0", options=PromptOptions(shots="one"))
    assert "extension = load_inline(" in anything


def test_an_example_shows_the_reference_at_the_size_of_the_device() -> None:
    options = PromptOptions(shots="one")
    assert "ROWS = 1024" in render_prompt(make_problem(), get_protocol(), "cpu", "auto", options)
    assert "ROWS = 16384" in render_prompt(make_problem(), get_protocol(), "cuda:0", "auto", options)


def test_examples_in_a_language_that_has_none_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no examples in helion; .* a backend of c, cpp, cuda, cuda_raw, triton"):
        render_prompt(make_problem(), get_protocol(), "cuda:0", "helion", PromptOptions(shots="one"))
    with pytest.raises(UsageError, match=r"backend must be one of auto, .*triton"):
        render_prompt(make_problem(), get_protocol(), "cuda:0", "fortran")


def test_the_blind_view_shows_no_drawing_of_inputs_and_keeps_the_sizes() -> None:
    text = render_prompt(make_problem(), get_protocol(), "cpu", "auto", PromptOptions(view="blind"))
    assert "torch.rand(" not in text
    assert "def get_inputs" not in text
    assert "rows = 64" in text
    assert "def get_init_inputs" in text


@pytest.mark.parametrize(
    ("reported", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", None),
        ("NVIDIA Z9000", None),
    ],
)
def test_a_device_is_found_by_the_name_that_it_reports(reported: str, known: str | None) -> None:
    gpu = find_gpu(reported)
    assert (None if gpu is None else gpu.name) == known


def test_the_table_of_gpus_is_plausible() -> None:
    for gpu in GPUS:
        assert find_gpu(gpu.name) is gpu
        assert gpu.limits.shared_block_kib <= gpu.limits.shared_kib
        peaks = dict(gpu.tflops)
        order = [peaks[kind] for kind in ("fp32", "tf32", "bf16", "fp8", "fp4") if kind in peaks]
        assert order == sorted(order), gpu.name
        assert gpu.source


def test_limits_of_a_capability_are_those_that_occupancy_is_computed_from() -> None:
    for gpu in GPUS:
        device = MULTIPROCESSORS[int(gpu.capability.replace(".", ""))]
        limits = gpu.limits
        assert (limits.threads, limits.blocks) == (32 * device.warps, device.blocks)
        assert limits.shared_kib * 1024 == device.shared_bytes
        assert limits.shared_block_kib * 1024 == device.shared_bytes_per_block
        assert device.registers == REGISTERS


def test_a_gpu_that_nobody_knows_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="H100"):
        facts_about("Voodoo 2")


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
    assert "Kernels:\n- Triton (@triton.jit)\n" in triton
    assert "cuda_sources" not in triton


def test_the_prompt_says_whether_a_custom_kernel_is_required() -> None:
    wanted = get_protocol(require_custom_kernel=True)
    assert "without one the answer is not credited" in render_prompt(make_problem(), wanted, "cpu")
    assert "without one the answer" not in render_prompt(make_problem(), get_protocol("verified"), "cpu")


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
