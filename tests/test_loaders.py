"""Every format that problems come in is read from a small checkout of our own, and becomes a plain source that runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from kbenv.cli import main
from kbenv.env import SingleTurnEnv
from kbenv.errors import (
    ProblemExcludedError,
    ProblemNotFoundError,
    ProblemUnjudgedError,
    TrainingForbiddenError,
    UsageError,
)
from kbenv.evaluator import Evaluator
from kbenv.problems import Problem, check_training, import_problems, list_problems, load_problem
from kbenv.problems.loaders import FORMATS, function_test, kernelbench, kernelbench_verified, recognise
from kbenv.problems.loaders.reduction import written_parameters
from kbenv.problems.problem import Case, Comparator, Contract

PLAIN = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


batch_size = 4
dim = 393216


def get_inputs():
    return [torch.rand(batch_size, 8)]


def get_init_inputs():
    return []
"""
FUNCTION = '''\
import torch


def scale(input, factor=2.0, *, dtype=None, device=None, out=None):
    """Scales."""
    if out is not None:
        return out.copy_(input * factor)
    assert device is None or isinstance(device, torch.device)
    result = input * factor
    return result if dtype is None else result.to(dtype)

'''
TEST = """

import torch
from data_utils import some
from scale import scale

def test_scale():
    results = {}
    torch.manual_seed(0)
    x = torch.tensor([1.0, 2.0], device="cuda")
    results["one"] = scale(x)
    results["two"] = scale(some((3,)), factor=3.0, dtype=torch.float64)
    try:
        scale("no tensor", None)
    except TypeError as error:
        results["error"] = str(error)
    scale(torch.ones(1), dtype=torch.float64)
    scale(torch.ones(3), out=torch.ones(3))
    scale(torch.ones(1), device="cuda")
    with torch.autocast("cuda", enabled=False), torch.autocast(device_type="cuda", enabled=False):
        results["three"] = scale(torch.ones(2).cuda(), -1)
    return results

test_results = test_scale()
"""
SEPARATOR = "#" * 146 + "\n"
DATA_UTILS = "import torch\n\n\ndef some(shape, device='cuda'):\n    return torch.randn(*shape, device=device)\n"


def write(path: Path, text: str | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def run(problem: Problem, submission: str | None = None) -> tuple[list[Any], list[torch.Tensor]]:
    """Inputs and outputs of the reference, or of a submission that is completed as the evaluator does."""
    namespace: dict[str, Any] = {"__name__": "problem", "__file__": "problem.py"}
    exec(problem.source_for("cpu"), namespace)
    torch.manual_seed(0)
    wanted = namespace["get_init_inputs"]()
    inputs = namespace["get_inputs"]()
    model = namespace["Model"]
    if submission is not None:
        answer: dict[str, Any] = {"__name__": "submission"}
        exec(problem.complete(submission), answer)
        model = answer["ModelNew"]
    with torch.no_grad():
        built = model(**wanted) if isinstance(wanted, dict) else model(*wanted)
        return inputs, tree_leaves(built(*inputs))


def only(folder: Path) -> Problem:
    """The one problem of a folder, which nothing in it is refused."""
    _, problems, refused = import_problems(folder)
    assert refused == []
    (problem,) = problems
    return problem


# -- KernelBench and its kin ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "version"), [("16384", "v0"), ("393216", "v0.1"), ("7", None)])
def test_a_checkout_s_version_is_told_by_its_sizes(tmp_path: Path, width: str, version: str | None) -> None:
    write(tmp_path / "KernelBench" / "level1" / "19_ReLU.py", PLAIN.replace("393216", width))
    origin = load_problem("kernelbench/level1/19", problems_dir=tmp_path).origin
    assert origin is not None
    assert (origin.name, origin.licence, origin.version) == ("kernelbench", "MIT", version)


def test_a_problem_that_is_random_by_dropout_alone_is_judged_in_evaluation_mode(tmp_path: Path) -> None:
    for number in (66, 67):
        write(tmp_path / "level2" / f"{number}_a.py", PLAIN)
    for number, mode in ((66, "eval"), (67, "train")):
        problem = load_problem(f"kernelbench/level2/{number}", problems_dir=tmp_path)
        assert problem.contract.mode == mode
        assert ("_kbenv_evaluates = True" in problem.source_judged("cpu")) == (mode == "eval")
        assert "_kbenv_evaluates" not in problem.source_shown("cpu")
    own = write(tmp_path / "own.py", f'"""Some.\n\nMode: evaluation.\n"""\n{PLAIN}')
    assert load_problem(str(own)).contract == Contract(mode="eval")


def test_the_commit_of_a_checkout_is_read_from_its_files(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    write(tmp_path / "level1" / "19_ReLU.py", PLAIN)
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "packed-refs", f"# pack-refs\n{commit} refs/heads/main\n")
    origin = load_problem("kernelbench/level1/19", problems_dir=tmp_path).origin
    assert origin is not None
    assert origin.version == f"v0.1 {commit}"


def test_inputs_that_give_an_answer_away_are_not_shown(tmp_path: Path) -> None:
    for name in ("level1/90_cumprod.py", "level1/91_other.py"):
        write(tmp_path / name, PLAIN)
    blind, full = (load_problem(f"kernelbench/level1/{n}", problems_dir=tmp_path) for n in (90, 91))
    assert (blind.view, full.view) == ("blind", "full")
    assert "def get_inputs" not in blind.source_shown("cpu")
    assert "def get_init_inputs" in blind.source_shown("cpu")
    assert "def get_inputs" in full.source_shown("cpu")
    assert "def get_inputs" in blind.source_shown("cpu", "full")
    assert "def get_inputs" in blind.source_for("cpu")


LEVEL_4 = """\
import torch
from transformers import AutoModelForCausalLM, AutoConfig

class Model(torch.nn.Module):
    def __init__(self, model_name, config):
        super().__init__()
        self.model_name = model_name
        self.config = config
        self.model = AutoModelForCausalLM.from_pretrained(self.model_name, config=self.config)

model_name = "gpt2"
config = AutoConfig.from_pretrained(model_name)

def get_inputs():
    return []

def get_init_inputs():
    return [model_name, config]
"""


def test_level_4_asks_no_hub(tmp_path: Path) -> None:
    write(tmp_path / "level4" / "7_gpt2.py", LEVEL_4)
    problem = load_problem("kernelbench/level4/7", problems_dir=tmp_path)
    assert "from_pretrained" not in problem.source
    assert "AutoModelForCausalLM.from_config(self.config).eval()" in problem.source  # a pretrained one has no dropout
    assert "AutoConfig.for_model(**{'model_type': 'gpt2'})" in problem.source
    assert problem.contract.requires == ("transformers",)
    assert "from_pretrained" in load_problem(str(tmp_path / "level4" / "7_gpt2.py")).source
    write(tmp_path / "level4" / "8_other.py", LEVEL_4.replace('"gpt2"', '"some/model"'))
    with pytest.raises(ProblemNotFoundError, match="asks a hub for some/model; known are"):
        load_problem("kernelbench/level4/8", problems_dir=tmp_path)


HIDDEN = '''\
"""
  D1: original (factor=1.0)

Filtered (reference model produced error or NaN/Inf):
  D2 (x3 large magnitude): reference output contains NaN/Inf
"""


def get_hidden_inputs():
    """Returns configs."""
    configs = []
    # D1: original (as-is)
    configs.append(_get_inputs())
    # D3: x0.01 near-zero
    configs.append(_scale(_get_inputs(), 0.01))
    # D4: x-1 negated
    configs.append(_scale(_get_inputs(), -1.0))
    # D5: structured targets
    d5 = _get_inputs()
    configs.append(d5)
    return configs
'''


def test_hidden_inputs_of_the_verified_set_are_read_beside_its_problems(tmp_path: Path) -> None:
    write(tmp_path / "KernelBench" / "level1" / "100_HingeLoss.py", PLAIN)
    write(tmp_path / "hidden_tests" / "level1" / "100_hidden.py", HIDDEN)
    assert recognise(tmp_path) is kernelbench_verified
    write(tmp_path / "stripped_prompts" / "100_HingeLoss_prompt.py", "# what is shown\n")
    problem = only(tmp_path)
    assert problem.id == "kernelbench-verified/level1/100"
    assert problem.source_shown("cuda") == "# what is shown\n"
    assert problem.dropped == {"D2": "reference output contains NaN/Inf"}
    assert problem.tags == ("hidden:D5",)
    assert kernelbench_verified.hidden_inputs(HIDDEN) == {"D1": 1.0, "D3": 0.01, "D4": -1.0, "D5": None}


def test_what_is_excluded_in_one_set_is_excluded_where_another_repeats_it(tmp_path: Path) -> None:
    write(tmp_path / "KernelBench" / "level2" / "23_Conv.py", PLAIN)
    (tmp_path / "hidden_tests").mkdir()
    with pytest.raises(ProblemExcludedError, match=r"kernelbench-verified/level2/23 is excluded .*constant"):
        Evaluator(protocol="verified", device="cpu", sandbox="process").evaluate(only(tmp_path), "")


@pytest.mark.parametrize(("suffix", "width", "version"), [("jsonl", "393216", "v0.1"), ("parquet", "16384", "v0")])
def test_the_published_data_set_is_a_table_of_sources(tmp_path: Path, suffix: str, width: str, version: str) -> None:
    code = PLAIN.replace("393216", width)
    rows = [
        {"code": code, "level": 1, "name": "19_ReLU", "problem_id": 19},
        {"code": PLAIN, "level": 1, "name": "90_cumprod", "problem_id": 90},
    ]
    write(tmp_path / "level_2.jsonl", json.dumps({"code": PLAIN, "level": 2, "name": "1_a", "problem_id": 1}) + "\n")
    if suffix == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "level_1-00000-of-00001.parquet")
    else:
        write(tmp_path / "level_1.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _, problems, refused = import_problems(tmp_path)
    assert refused == []
    ids = ["kernelbench/level1/19", "kernelbench/level1/90", "kernelbench/level2/1"]
    assert [problem.id for problem in problems] == ids
    assert [problem.name for problem in problems] == ["ReLU", "cumprod", "a"]
    assert {problem.origin.version for problem in problems if problem.origin} == {f"{version} data set"}
    assert problems[1].view == "blind"
    assert problems[1].dropped == {"D2": "overflows"}
    assert run(problems[0])[1][0].shape == (4, 8)


def test_a_table_of_another_set_is_not_taken_for_kernelbench_s(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    from pyarrow import parquet

    rows = [{"name": "001_a", "axes": "{}", "reference": "def run(): ...", "workloads": "[]"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    for path in (tmp_path, tmp_path / "train.parquet"):
        with pytest.raises(ProblemNotFoundError, match=r"in no format that is known; .*download_solexecbench.py"):
            import_problems(path)


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"code": "", "level": 1, "name": "", "problem_id": 1}\n{"code": ""}\n')
    with pytest.raises(ProblemNotFoundError, match=r"expected rows with code, .*; row 2; level: Field required"):
        import_problems(tmp_path)


# -- functions with a test --------------------------------------------------------------------------------------------


@pytest.fixture
def kernelbench_x(tmp_path: Path) -> Path:
    write(tmp_path / "data" / "kernelbenchx" / "Quantization" / "scale.py", FUNCTION + SEPARATOR + TEST)
    write(tmp_path / "utils" / "data_utils.py", DATA_UTILS)
    return tmp_path


def test_a_function_s_problem_makes_the_calls_of_its_test(kernelbench_x: Path) -> None:
    problem = only(kernelbench_x)
    assert (problem.id, problem.category) == ("kernelbench-x/Quantization/scale", "quantization")
    inputs, outputs = run(problem)
    assert [len(positional) for positional, _ in inputs] == [1, 1, 1, 1, 1, 2]
    assert [str(output.dtype)[-2:] for output in outputs] == ["32", "64", "64", "32", "32", "32"]
    assert torch.equal(outputs[0], torch.tensor([2.0, 4.0]))
    assert torch.equal(outputs[1], (inputs[1][0][0] * 3.0).double())
    assert torch.equal(outputs[5], torch.tensor([-1.0, -1.0]))


def test_calls_that_write_into_their_arguments_are_inputs_where_the_function_has_such_methods(
    kernelbench_x: Path,
) -> None:
    assert only(kernelbench_x).contract.in_place == (-1,)
    (path,) = (kernelbench_x / "data" / "kernelbenchx").glob("*/scale.py")
    path.write_text(
        FUNCTION.replace("out.copy_(input * factor)", "torch.mul(input, factor, out=out)") + SEPARATOR + TEST
    )
    problem = only(kernelbench_x)
    assert problem.contract.in_place == ()
    assert [len(positional) for positional, _ in run(problem)[0]] == [1, 1, 1, 1, 2]  # not the one with `out`


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("return F.batch_norm(x, running_mean, running_var, training=True)", True),
        ("return F.embedding(x, w, max_norm=max_norm)", True),
        ("x.add_(1); return x", True),
        ("x += 1; return x", True),
        ("return F.batch_norm(x, None, None, training=True)", False),
        ("return F.embedding(x, w)", False),
        ("return x.requires_grad_().exp()", False),
    ],
)
def test_functions_that_may_write_into_what_they_are_given_are_known(body: str, written: bool) -> None:
    reference = ast.parse(f"def f(x, w, running_mean, running_var, max_norm):\n    {body}\n")
    assert function_test._writes(reference, ["f"]) is written


KERNELS = """
import triton
import triton.language as tl

@triton.jit
def put(pointer, value):
    tl.store(pointer, value)

@triton.autotune(configs=[], key=[])
@triton.jit
def kernel(X, Index, Out, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    X += n
    target = Out + tl.load(Index + offsets) * n
    {store}

class Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out):
        kernel[(1,)](x, x, out, x.numel(), BLOCK=4)

def inner(x, to, n=None):
    kernel[(1,)](x, x, Out=to, n=n)

def copied(x, to, n):
    inner(x, torch.empty_like(to), n)
    return to

put_out = Put.apply

def f(x, out, n):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "store", "written"),
    [
        ("kernel[(n,)](x, x, out, n, 1, 4)", "tl.store(target, 1)", True),
        ("kernel[(n,)](x, x, out, n, 1, 4)", "tl.atomic_add(target, 1)", True),
        ("kernel[(n,)](x, x, out, n, 1, 4)", "tl.store(tl.make_block_ptr(base=target, shape=(n,)), 1)", True),
        ("kernel[(n,)](x, x, out, n, 1, 4)", "put(target, 1)", True),
        ("kernel[(n,)](x, x, out, n, 1, 4)", "tl.load(target)", False),
        ("kernel[(n,)](x, out, x.new_empty(n), n, 1, 4)", "tl.store(target, 1)", False),
        (
            "y = torch.empty_like(out); kernel[(n,)](x, out, y, n, out.stride(0), 4); return y",
            "tl.store(target, 1)",
            False,
        ),
        ("y = out.view(-1)[1:]; kernel[(n,)](x, x, y, n, 1, 4)", "tl.store(target, 1)", True),
        ("inner(x, to=out if n else x)", "tl.store(target, 1)", True),
        ("return copied(x, out, n)", "tl.store(target, 1)", False),
        ("Put.apply(x, out)", "tl.store(target, 1)", True),
        ("put_out(x, out)", "tl.store(target, 1)", True),
        ("put_out(out, x.clone())", "tl.store(target, 1)", False),
    ],
)
def test_functions_whose_kernels_write_into_what_they_are_given_are_known(body: str, store: str, written: bool) -> None:
    reference = ast.parse(KERNELS.replace("{body}", body).replace("{store}", store))
    assert function_test._writes(reference, ["f"]) is written


def test_a_function_that_cannot_be_found_writes_where_any_does() -> None:
    reference = KERNELS.replace("{body}", "inner(x, out)") + "\ng = functools.partial(f)\n"
    assert function_test._writes(ast.parse(reference.replace("{store}", "tl.store(target, 1)")), ["g"])
    assert not function_test._writes(ast.parse(reference.replace("{store}", "pass")), ["g"])


def function_file(tmp_path: Path, reference: str, test: str, part: str = "T") -> Path:
    write(tmp_path / "data" / f"TritonBench_{part}_v1" / "one.py", f"{reference}\n{SEPARATOR}\n{test}")
    return tmp_path


PUT = "import torch\n\n\ndef put(x, out):\n    return {returned}out.copy_(x)\n"


@pytest.mark.parametrize(
    ("returned", "calls", "inputs"),
    [
        (
            "None if len(x) > 1 else ",
            "put(one, two); put(torch.ones(1), torch.zeros(1)); put(torch.ones(1), torch.ones(1))",
            1,
        ),
        ("", "put(one, two); put(one, two)", 1),  # the second returns the argument as it was
        ("x * 2 if len(x) > 1 else ", "put(one, two); put(one, two)", 2),
        ("len(x) if len(x) > 1 else ", "put(one, two)", 1),
    ],
)
def test_a_call_that_returns_nothing_new_and_changes_nothing_is_no_input(
    tmp_path: Path, returned: str, calls: str, inputs: int
) -> None:
    test = f"import torch\none, two = torch.ones(2), torch.zeros(2)\n{calls}\n"
    problem = only(function_file(tmp_path, PUT.format(returned=returned), test))
    assert problem.contract.in_place == (-1,)
    assert len(run(problem)[0]) == inputs


def test_a_test_of_nothing_but_such_calls_says_so(tmp_path: Path) -> None:
    reference = PUT.format(returned="None if len(x) else ")
    problem = only(function_file(tmp_path, reference, "import torch\nput(torch.ones(1), torch.ones(1))\n"))
    with pytest.raises(RuntimeError, match="every call of the test raises, or changes and returns nothing"):
        run(problem)


def test_memory_that_a_test_leaves_uninitialised_holds_zeros(tmp_path: Path) -> None:
    made = "(torch.empty(3), torch.empty_like(x), x.new_empty((3,)))"
    test = (
        f"import torch\nx = torch.ones(3)\nfor out in {made}:\n    assert out.tolist() == [0, 0, 0]\n    put(x, out)\n"
    )
    assert len(run(only(function_file(tmp_path, PUT.format(returned=""), test)))[0]) == 3


def test_a_reference_may_leave_importing_torch_to_its_test(tmp_path: Path) -> None:
    problem = only(
        function_file(tmp_path, "def two(x):\n    return torch.add(x, x)\n", "import torch\ntwo(torch.ones(2))\n")
    )
    assert run(problem)[1][0].tolist() == [2.0, 2.0]
    assert "import torch" in problem.source_shown("cuda")


@pytest.mark.parametrize("end", ["", "if __name__ == '__main__':\n    print(test_two())\n"])
def test_a_test_that_nothing_calls_is_called(tmp_path: Path, end: str) -> None:
    test = f"import torch\n\ndef test_two():\n    two(torch.ones(2))\n\n{end}"
    reference = "import torch\n\n\ndef two(x):\n    return x + x\n"
    assert len(run(only(function_file(tmp_path, reference, test)))[0]) == 1


def test_a_function_that_a_test_repeats_is_the_one_that_is_recorded(tmp_path: Path) -> None:
    reference = "import torch\n\n\ndef two(x):\n    return x + x\n"
    assert len(run(only(function_file(tmp_path, reference, f"{reference}\ntwo(torch.ones(2))\n")))[0]) == 1


def test_kernels_that_a_test_launches_are_no_functions(tmp_path: Path) -> None:
    launches = "import torch\nkernel[(1,)](torch.ones(1))\n"
    reference = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\ndef two(x):\n    return x + x\n"
    problem = only(function_file(tmp_path, reference, launches + "two(torch.ones(1))\n"))
    assert problem.contract.entry == "two"
    assert "def _test(two):" in problem.source
    _, problems, refused = import_problems(function_file(tmp_path, reference, launches))
    assert problems == []
    assert "launches the kernel kernel itself; only functions can be called" in refused[0]


@pytest.mark.parametrize(
    ("part", "made", "dtype"),
    [
        ("G", "torch.ones(2)", None), ("G", "torch.ones(2, dtype=torch.float32)", None),
        ("G", "torch.ones(2, dtype=torch.float16)", "mixed"), ("G", "torch.ones(2).half()", "mixed"),
        ("T", "torch.ones(2, dtype=torch.float16)", None),
    ],
)  # fmt: skip
def test_kernels_from_repositories_are_given_the_types_that_they_are_for(
    tmp_path: Path, part: str, made: str, dtype: str | None
) -> None:
    reference = "import torch\n\n\ndef two(x):\n    return x + x\n"
    problem = only(function_file(tmp_path, reference, f"import torch\ntwo({made})\n", part))
    assert problem.dtype == dtype


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("x.scatter_(0, index, y); return x", (0,)),
        ("y = y.clone(); y.add_(x); return y", ()),
        ("x.index_put_((index,), y); y.zero_(); return x", (0, 2)),
        ("return x.requires_grad_()", ()),
        ("x[index] = y; return x", (0,)),
        ("y[0] += 1; return x[index] + y", (2,)),
        ("x = x.clone(); x[index] = y; return x", ()),
    ],
)
def test_arguments_that_a_forward_writes_into_are_known(body: str, written: tuple[int, ...]) -> None:
    source = f"class Model(nn.Module):\n    def forward(self, x, index, y):\n        {body}\n"
    assert written_parameters(ast.parse(source)) == written


def test_a_test_s_own_seed_does_not_fix_the_draws(kernelbench_x: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(only(kernelbench_x).source, namespace)
    draws = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        draws.append(namespace["get_inputs"]()[1][0][0])
    assert not torch.equal(*draws)


def test_the_prompt_shows_the_function_and_not_its_test(kernelbench_x: Path) -> None:
    shown = only(kernelbench_x).source_shown("cuda")
    assert "def scale(input" in shown
    assert "class Model" in shown
    assert "test_scale" not in shown
    assert "_packed" not in shown


def test_a_submission_may_define_the_function_or_the_module(kernelbench_x: Path) -> None:
    problem = only(kernelbench_x)
    expected = run(problem)[1]
    head = "import torch\n\n\ndef scale(input, factor=2.0, *, dtype=None, device=None, out=None):\n"
    function = f"{head}    return (factor * input).to(dtype)\n"
    module = problem.source.replace("class Model(", "class ModelNew(")
    for submission in (function.replace(".to(dtype)", ".to(dtype or torch.float32)"), module):
        assert all(torch.equal(a, b) for a, b in zip(run(problem, submission)[1], expected, strict=True))
    assert problem.complete(module) == module
    assert problem.complete("not python (") == "not python ("


def test_thresholds_and_index_of_the_set_are_kept(kernelbench_x: Path) -> None:
    entry = {"file": "Quantization/scale.py", "precision_thresholds": {"cosine_sim": 0.9}, "difficulty": "3"}
    write(kernelbench_x / "data" / "kernelbenchx_v1.json", json.dumps([entry]))
    write(kernelbench_x / "data" / "kernelbenchx" / "Math" / "unlisted.py", FUNCTION + SEPARATOR + TEST)
    problem = only(kernelbench_x)
    assert problem.contract.comparator == Comparator("metrics", {"cosine_sim": 0.9})
    assert problem.tags == ("difficulty:3",)
    assert problem.why_unjudged("fp32") is None


def test_tritonbench_has_two_parts_and_wants_triton(tmp_path: Path) -> None:
    two = FUNCTION + "\n\ndef half(x):\n    return x / 2\n" + SEPARATOR
    test = "import torch\nfor width in (1, 2):\n    scale(torch.ones(width))\nhalf(x=torch.ones(3))\n"
    write(tmp_path / "data" / "TritonBench_T_v1" / "scale.py", two + test)
    write(tmp_path / "data" / "TritonBench_G_v1" / "kernel.py", two + test)
    _, problems, _ = import_problems(tmp_path)
    assert [problem.id for problem in problems] == ["tritonbench/t/scale", "tritonbench/g/kernel"]
    assert {problem.contract.backends for problem in problems} == {("triton",)}
    assert [output.tolist() for output in run(problems[0])[1]] == [[2.0], [2.0, 2.0], [0.5, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (FUNCTION + SEPARATOR + "print(1)\n", "calls nothing that the file defines"),
        ("class Layer:\n    pass\n" + SEPARATOR + "Layer()\n", "uses the class Layer"),
        (FUNCTION, "found no line of #"),
        (FUNCTION + SEPARATOR + "def (\n", "not valid Python"),
    ],
)
def test_what_is_no_function_with_a_test_is_refused(tmp_path: Path, source: str, says: str) -> None:
    write(tmp_path / "data" / "TritonBench_T_v1" / "a.py", source)
    _, problems, refused = import_problems(tmp_path)
    assert problems == []
    assert says in refused[0]


# -- sets with settings -----------------------------------------------------------------------------------------------

ROBUST = """\
import torch
import torch.nn as nn


def forward_fn(x, weight):
    return x * weight


class Model(nn.Module):
    def __init__(self, width: int = 4, init: float = 1.0):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.full((width,), init))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(rows: int = 2, width: int = 4):
    return [torch.randn(rows, width, requires_grad=True)]
"""
SETTINGS = {
    "single_input_configs": [{"rows": 8}], "single_init_configs": [{"init": 2.0}],
    "single_shared_configs": [{"width": 3}],
    "multi_input_configs": [{"rows": 8}, {"rows": 5}], "multi_init_configs": [{"init": 2.0}],
    "multi_shared_configs": [{"width": 3}],
}  # fmt: skip


@pytest.fixture
def robust(tmp_path: Path) -> Path:
    for direction in ("forward", "backward"):
        write(tmp_path / "tasks" / "scale" / f"func_{direction}.py", ROBUST)
        write(tmp_path / "tasks" / "scale" / f"config_{direction}.json", SETTINGS)
    return tmp_path


def test_settings_are_cases_of_which_the_single_one_is_timed(robust: Path) -> None:
    problem = load_problem("robust-kbench/scale", problems_dir=robust)
    assert [(case.name, case.role) for case in problem.cases] == [("0", "perf"), ("1", "public")]
    inputs, (output,) = run(problem.for_case("1"))
    assert inputs[0].shape == (5, 3)
    assert torch.equal(output, 2.0 * inputs[0])
    assert run(problem)[0][0].shape == (8, 3)


def test_a_backward_task_returns_the_gradients(robust: Path) -> None:
    problem = load_problem("robust-kbench/scale/backward#0", problems_dir=robust)
    assert problem.contract.reference == "backward"
    (gradient, x), (of_x, of_weight) = run(problem)
    assert torch.allclose(of_x, 2.0 * gradient)
    assert torch.allclose(of_weight, (gradient * x).sum(dim=0))


NPU = """\
import torch
import torch.nn as nn
import json
import os


class Model(nn.Module):
    def forward(self, x, alpha):
        return x * alpha


def get_input_groups():
    path = os.path.join(os.path.dirname(__file__), "scale.json")
    with open(path, "r") as f:
        cases = [json.loads(line) for line in f if line.strip()]
    groups = []
    for index, case in enumerate(cases):
        x, alpha = case["inputs"]
        draw = torch.zeros if index % 2 else torch.ones
        groups.append([draw(x["shape"], dtype=getattr(torch, x["dtype"])), alpha["value"]])
    return groups


def get_init_inputs():
    return []
"""


def test_groups_of_inputs_are_cases_that_need_no_file(tmp_path: Path) -> None:
    write(tmp_path / "dataset.py", "")
    lines = [
        {"inputs": [{"name": "x", "dtype": dtype, "shape": shape}, {"name": "alpha", "value": alpha}]}
        for dtype, shape, alpha in (("float32", [2], 2), ("bfloat16", [3, 1], 3), ("float32", [40], 4))
    ]
    folder = tmp_path / "reference" / "npukernelbench_level2"
    write(folder / "scale.py", NPU)
    write(folder / "scale.json", "".join(json.dumps(line) + "\n" for line in lines))
    write(tmp_path / "reference" / "activation" / "plain.py", PLAIN)
    problem = load_problem("multikernelbench/npukernelbench_level2/scale", problems_dir=tmp_path)
    assert [case.role for case in problem.cases] == ["public", "public", "perf"]
    assert (problem.level, problem.category) == (2, "npukernelbench_level2")
    outputs = [run(problem.for_case(str(index)))[1][0] for index in range(3)]
    assert [output.tolist() for output in outputs] == [[2.0, 2.0], [[0.0], [0.0], [0.0]], [4.0] * 40]
    assert outputs[1].dtype == torch.bfloat16
    assert "--precision bf16" in str(problem.for_case("1").why_unjudged("fp32"))
    assert problem.for_case("1").why_unjudged("bf16") is None
    assert "_LINES" not in problem.source_shown("cuda")
    assert load_problem("multikernelbench/activation/plain", problems_dir=tmp_path).contract == Contract()


DEFINITION = {
    "name": "scaled_add",
    "op_type": "elementwise",
    "axes": {
        "rows": {"type": "var"}, "columns": {"type": "const", "value": 6},
        "half": {"type": "expr", "expression": "columns // 2"},
    },
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"}, "i": {"shape": ["rows"], "dtype": "int32"},
        "alpha": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "half"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x, i, alpha):\n    return x[:, : x.shape[1] // 2] * alpha + i.unsqueeze(1)\n",
}  # fmt: skip


def workload(rows: int, kind: str = "random") -> str:
    inputs = {"x": {"type": kind, "path": "a", "tensor_key": "x"}, "i": {"type": "random"}}
    tolerance = {"max_atol": 0.01, "required_matched_ratio": 0.99, "max_error_cap": None}
    return json.dumps({
        "axes": {"rows": rows}, "inputs": {**inputs, "alpha": {"type": "scalar", "value": 2.0}}, "uuid": "u",
        "tolerance": tolerance,
    })  # fmt: skip


def sol_execbench(folder: Path) -> str:
    write(folder / "scaled_add" / "definition.json", DEFINITION)
    write(folder / "scaled_add" / "workload.jsonl", f"{workload(3)}\n{workload(5)}\n{workload(9, 'safetensors')}\n")
    return "sol-execbench/scaled_add"


def flashinfer_bench(folder: Path) -> str:
    write(folder / "definitions" / "add" / "scaled_add.json", DEFINITION)
    lines = [json.dumps({"workload": json.loads(workload(rows)), "definition": "scaled_add"}) for rows in (3, 5)]
    write(folder / "workloads" / "add" / "scaled_add.jsonl", "\n".join(lines))
    return "flashinfer-bench/scaled_add"


@pytest.mark.parametrize("make", [sol_execbench, flashinfer_bench])
def test_a_definition_s_workloads_are_cases(tmp_path: Path, make: Callable[[Path], str]) -> None:
    id = make(tmp_path)
    problem = only(tmp_path)
    assert problem.id == id
    assert [case.constants for case in problem.cases] == [{"rows": 3, "alpha": 2.0}, {"rows": 5, "alpha": 2.0}]
    strictest = {"absolute": 0.01, "share": 0.99} | ({"relative": 0.01} if make is sol_execbench else {})
    assert problem.contract.comparator == Comparator("matched", strictest)
    (x, i, alpha), (output,) = run(problem.for_case("0"))
    assert alpha == 2.0
    assert torch.equal(output, x[:, :3] * 2.0 + i.unsqueeze(1))
    returning = "def run(x, i, alpha):\n    return x[:, :3] * alpha + i.unsqueeze(1)\n"
    writing = "def run(x, i, alpha, y):\n    y.copy_(x[:, :3] * alpha + i.unsqueeze(1))\n"
    for submission in (returning, writing):
        assert torch.equal(run(problem.for_case("0"), submission)[1][0], output)


def test_sol_execbench_is_for_evaluation_alone_and_flashinfer_bench_for_training_too(tmp_path: Path) -> None:
    problem = load_problem(sol_execbench(tmp_path / "sol"), problems_dir=tmp_path / "sol")
    assert problem.origin is not None
    assert (problem.origin.may_train, problem.origin.licence) == (False, "NVIDIA Evaluation Dataset License")
    with pytest.raises(TrainingForbiddenError, match=r"licence of sol-execbench .* restricts training"):
        problem.check_training()
    with pytest.raises(TrainingForbiddenError, match=r"licence of sol-execbench .* restricts training"):
        check_training(problem.id)  # by its id alone
    other = load_problem(flashinfer_bench(tmp_path / "trace"), problems_dir=tmp_path / "trace")
    assert other.origin is not None
    assert (other.origin.may_train, other.origin.licence) == (True, "Apache-2.0")
    other.check_training()
    check_training(other.id)


def test_a_definition_may_draw_its_own_inputs(tmp_path: Path) -> None:
    id = sol_execbench(tmp_path)
    drawing = (
        "\ndef draw(axes, device):\n    x = torch.full((axes['rows'], axes['columns']), axes['half'] * axes['alpha'])\n"
        "    return {'x': x, 'alpha': 1.0, 'i': torch.zeros(axes['rows'], dtype=torch.int32)}\n"
    )
    changed = {"custom_inputs_entrypoint": "draw", "reference": str(DEFINITION["reference"]) + drawing}
    write(tmp_path / "scaled_add" / "definition.json", DEFINITION | changed)
    assert run(load_problem(f"{id}#1", problems_dir=tmp_path))[1][0].unique().tolist() == [6.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reference": "def other(): ..."}, "defines no run"),
        ({"axes": 3}, "axes: "),
        ({"custom_inputs_entrypoint": "none"}, "defines no none"),
    ],
)
def test_a_broken_definition_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    sol_execbench(tmp_path)
    write(tmp_path / "scaled_add" / "definition.json", DEFINITION | change)
    assert says in import_problems(tmp_path)[2][0]


def test_workloads_whose_tensors_lie_elsewhere_are_no_cases(tmp_path: Path) -> None:
    sol_execbench(tmp_path)
    write(tmp_path / "scaled_add" / "workload.jsonl", workload(3, "safetensors"))
    assert "1 need tensors stored elsewhere" in import_problems(tmp_path)[2][0]


GPU_REFERENCE = """\
from utils import make_match_reference
from task import input_t, output_t
import torch


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return a + b


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    return tuple(torch.randn(size, device="cuda", generator=gen) for _ in range(2))


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=2e-3)
"""
TASK_YML = """\
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
tests:
  - {"size": 3, "seed": 1}
benchmarks:
  - {"size": 5, "seed": 2}
"""


@pytest.fixture
def gpu_mode(tmp_path: Path) -> Path:
    pytest.importorskip("yaml", reason="these sets need PyYAML")
    folder = tmp_path / "problems" / "some" / "add"
    write(folder / "task.yml", TASK_YML)
    write(folder / "reference.py", GPU_REFERENCE)
    write(folder / "task.py", "import torch\n\ninput_t = tuple\noutput_t = torch.Tensor\n")
    write(folder.parent / "utils.py", "def make_match_reference(reference, **_):\n    return reference\n")
    return tmp_path


def test_tests_and_benchmarks_of_a_competition_are_cases(gpu_mode: Path) -> None:
    problem = only(gpu_mode)
    assert problem.id == "gpu-mode/some/add"
    assert [(case.name, case.role) for case in problem.cases] == [("test-0", "public"), ("benchmark-0", "perf")]
    assert problem.contract.comparator == Comparator("allclose", {"relative": 1e-3, "absolute": 2e-3})
    (data,), (output,) = run(problem.for_case("test-0"))
    assert torch.equal(output, data[0] + data[1])
    submission = "from task import input_t\n\n\ndef custom_kernel(data: input_t):\n    return data[1] + data[0]\n"
    assert torch.equal(run(problem.for_case("test-0"), submission)[1][0], output)
    assert "_define_module" not in problem.source_shown("cuda")


@pytest.mark.parametrize(
    ("checker", "kind"),
    [
        ("def check_implementation(data, output):\n    return True, ''", "custom"),
        ("def check_implementation(data, output):\n    reasons = verbose_allequal(output, ref_kernel(data))", "exact"),
        ("def check_implementation(data, output):\n    return match_reference(data, output, reference=ref_kernel, "
         "rtol=1e-3, atol=2e-3)", "allclose"),
        ("def check_implementation(data, output):\n    return verbose_allclose(sorted(output), ref_kernel(data))",
         "custom"),
    ],
)  # fmt: skip
def test_a_competition_s_checker_is_a_tolerance_or_decides_itself(gpu_mode: Path, checker: str, kind: str) -> None:
    path = gpu_mode / "problems" / "some" / "add" / "reference.py"
    own = "check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=2e-3)"
    path.write_text(GPU_REFERENCE.replace(own, checker))
    problem = only(gpu_mode).for_case("test-0")
    assert problem.contract.comparator.kind == kind
    assert problem.why_unjudged("fp32") is None
    assert ("_kbenv_check" in problem.source) == (kind == "custom")
    assert ("_kbenv_bits = True" in problem.source_judged("cpu")) == (kind == "exact")


def test_a_reference_that_writes_into_what_it_is_given_says_so(gpu_mode: Path) -> None:
    path = gpu_mode / "problems" / "some" / "add" / "reference.py"
    path.write_text(
        GPU_REFERENCE.replace("    return a + b", "    output = a\n    output[...] = a + b\n    return output")
    )
    problem = only(gpu_mode).for_case("test-0")
    assert problem.contract.in_place == (0,)
    assert problem.why_unjudged("fp32") is None
    assert problem.source_judged("cpu").endswith("_kbenv_writes = (0,)\n")
    assert "_kbenv" not in problem.source_shown("cpu")


def test_a_set_whose_licence_restricts_training_is_for_evaluation_alone(gpu_mode: Path) -> None:
    problem = only(gpu_mode)
    with pytest.raises(TrainingForbiddenError, match=r"licence of gpu-mode .* restricts training; use it to evaluate"):
        SingleTurnEnv(problem, device="cpu", sandbox="process")
    SingleTurnEnv(problem, device="cpu", sandbox="process", evaluation=True).close()
    load_problem("core/level1/relu").check_training()


HARD = PLAIN.replace("batch_size = 4\ndim = 393216\n", "BATCH = 4\n").replace("batch_size, 8", "BATCH, 8")


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    pytest.importorskip("yaml", reason="these sets need PyYAML")
    folder = tmp_path / "problems" / "01_add"
    text = 'name: 01_add\ndisplay_name: "Add"\nflops_formula: "batch"\ntolerance:\n  float32: {atol: 1, rtol: 2}\n'
    write(folder / "problem.yaml", text)
    write(folder / "reference.py", HARD)
    write(folder / "shapes.py", 'SHAPES = [{"batch": 2}, {"batch": 3}, {"batch": 4, "extreme": True}]\n')
    write(tmp_path / "problems" / "02_stub" / "problem.yaml", "name: stub\n")
    return tmp_path


def test_shapes_set_the_reference_s_constants(hard: Path) -> None:
    problem = only(hard)
    assert problem.id == "kernelbench-hard/01_add"
    assert problem.hints == {"flops": "batch"}
    assert problem.contract.comparator.parameters == {"absolute": 1.0, "relative": 2.0}
    assert [run(problem.for_case(case.name))[1][0].shape[0] for case in problem.cases] == [2, 3]
    submission = HARD[: HARD.index("BATCH")]  # the set's own submissions define Model
    assert run(problem.for_case("0"), submission)[1][0].shape == (2, 8)


def test_a_shape_that_sets_nothing_of_the_reference_is_no_case(hard: Path) -> None:
    write(hard / "problems" / "01_add" / "shapes.py", 'SHAPES = [{"other": 2}]\n')
    assert "no shape in shapes.py sets constants" in import_problems(hard)[2][0]
    write(hard / "problems" / "01_add" / "shapes.py", "SHAPES = make()\n")
    assert "SHAPES must be a literal" in import_problems(hard)[2][0]


# -- cases, and what is not judged ------------------------------------------------------------------------------------


def test_a_problem_of_several_cases_is_judged_on_all_of_them_or_on_one(hard: Path) -> None:
    problem = only(hard)
    assert problem.why_unjudged("fp32") is None
    one = load_problem("kernelbench-hard/01_add#1", problems_dir=hard)
    assert one.id == "kernelbench-hard/01_add#1"
    assert one.why_unjudged("fp32") is None
    assert one.for_case("0").id == "kernelbench-hard/01_add#0"
    with pytest.raises(UsageError, match="has no case '7'; found 0, 1"):
        load_problem("kernelbench-hard/01_add#7", problems_dir=hard)


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        (Contract(dtype="mixed"), "several floating types"),
        (Contract(dtype="bf16"), "judge it with --precision bf16"),
        (Contract(comparator=Comparator("custom")), "a checker of its own"),
        (Contract(processes=8), "a group of 8 processes"),
        (Contract(unsupported="it wants a printer"), "it wants a printer"),
    ],
)
def test_what_the_judge_would_get_wrong_is_refused_with_why(contract: Contract, why: str) -> None:
    problem = replace(load_problem("core/level1/relu"), contract=contract)
    with Evaluator(device="cpu", sandbox="process") as evaluator:
        for judge in (lambda: evaluator.evaluate(problem, ""), lambda: evaluator.format_error(problem, "no code")):
            with pytest.raises(ProblemUnjudgedError, match=f"core/level1/relu is not judged: .*{why}"):
                judge()
    assert problem.why_unjudged("bf16") is None or contract.dtype != "bf16"


def test_a_case_puts_its_constants_in_place_of_any_size() -> None:
    problem = load_problem("core/level1/relu")
    cases = (Case("a", "public", {"ROWS": 3}), Case("b", "perf", {"ROWS": 5, "COLUMNS": 7}))
    several = replace(problem, cases=cases)
    assert "ROWS = 5\nCOLUMNS = 7\n" in several.source_for("cpu")
    assert "ROWS = 3\nCOLUMNS = 2048\n" in several.for_case("a").source_for("cpu")


def test_only_the_languages_that_a_set_admits_count() -> None:
    from tests.test_evaluator import make_evaluator, make_result

    wants_triton = replace(load_problem("core/level1/relu"), contract=Contract(backends=("triton",)))
    source = 'import ctypes\nlibrary = ctypes.CDLL("./a.so")\n\n\nclass ModelNew: ...\n'
    evaluator, _ = make_evaluator(make_result(), require_custom_kernel=True)
    assert evaluator.evaluate(wants_triton, source).status == "NO_CUSTOM_KERNEL"
    assert evaluator.evaluate(replace(wants_triton, contract=Contract()), source).credited


# -- finding out what something is ------------------------------------------------------------------------------------


def test_what_is_in_no_known_format_is_refused_and_the_formats_are_named(tmp_path: Path) -> None:
    for path in (tmp_path, write(tmp_path / "notes.txt", "hello")):
        with pytest.raises(ProblemNotFoundError) as error:
            import_problems(path)
        assert all(form in str(error.value) for form in FORMATS)
    with pytest.raises(ProblemNotFoundError, match="no such file or folder"):
        import_problems(tmp_path / "none")
    with pytest.raises(ProblemNotFoundError, match=r"found no Model.*Model, get_inputs.*a function, a line of #"):
        import_problems(write(tmp_path / "a.py", "x = 1\n"))


def test_one_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.py", PLAIN)
    function = write(
        tmp_path / "function.py",
        FUNCTION
        + SEPARATOR
        + TEST.replace("from data_utils import some\nfrom scale import scale\n", "some = torch.ones\n"),
    )
    assert load_problem(str(plain)).contract == Contract()
    assert load_problem(str(function)).contract.entry == "scale"
    assert import_problems(function)[1][0].name == "function"


def test_import_tells_what_a_folder_is(robust: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "import", str(robust)]) == 0
    text = capsys.readouterr().out
    assert "robust-kbench: func_forward.py" in text
    assert "2 of 2 load; licence Apache-2.0: for training and evaluation; version unknown" in text
    assert "references: 1 backward, 1 module\n" in text
    assert "2\tyes, on all its cases\trobust-kbench/scale" in text
    write(robust / "tasks" / "scale" / "config_backward.json", "{")
    assert main(["problems", "import", str(robust)]) == 1
    assert "robust-kbench/scale/backward does not load" in capsys.readouterr().err
    assert main(["problems", "import", str(robust), "--json"]) == 1
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == ["robust-kbench/scale"]


def test_the_environment_names_checkouts_of_any_set(
    robust: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    write(other / "level1" / "19_ReLU.py", PLAIN)
    monkeypatch.delenv("KBENV_KERNELBENCH", raising=False)
    monkeypatch.setenv("KBENV_PROBLEM_SETS", f"{robust}:{other}")
    assert {"core", "robust-kbench", "kernelbench"} == {problem.id.split("/")[0] for problem in list_problems("*")}
    assert load_problem("robust-kbench/scale#1").case == "1"
    assert kernelbench.recognises(other)
    monkeypatch.setenv("KBENV_PROBLEM_SETS", f"{robust}:{tmp_path / 'none'}")
    with pytest.raises(UsageError, match=r"KBENV_PROBLEM_SETS names .*/none, and there is no such folder"):
        list_problems("*")


def test_nothing_is_executed_and_nothing_heavy_imported(kernelbench_x: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from kbenv.problems import import_problems; "
        f"import_problems(Path({str(kernelbench_x)!r})); "
        "print([name for name in ('torch', 'yaml', 'pyarrow') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_a_folder_of_files_is_imported_and_what_is_no_problem_is_said(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        write(tmp_path / name, PLAIN)
    form, problems, refused = import_problems(tmp_path)
    assert f"'{tmp_path}/*.py'" in form
    assert [problem.id for problem in problems] == [str(tmp_path / "one.py"), str(tmp_path / "two.py")]
    assert [problem.id for problem in list_problems(f"{tmp_path}/*.py")] == [problem.id for problem in problems]
    assert refused == []
    write(tmp_path / "none.py", "x = 1\n")
    assert len(import_problems(tmp_path)[1]) == 2
    assert "none.py does not load" in import_problems(tmp_path)[2][0]
    for name in ("one.py", "two.py"):
        (tmp_path / name).unlink()
    with pytest.raises(ProblemNotFoundError, match="in no format that is known"):
        import_problems(tmp_path)


def test_an_address_is_not_fetched() -> None:
    with pytest.raises(ProblemNotFoundError, match=r"^https://github\.com/Scaling\S* .*; git clone it first"):
        import_problems(Path("https://github.com/ScalingIntelligence/KernelBench"))


def test_a_task_that_writes_into_an_argument_says_so(tmp_path: Path) -> None:
    source = (
        "import torch\nfrom torch import nn\n\n\n"
        "class Model(nn.Module):\n"
        "    def forward(self, x, index, value):\n        x[index] = value\n        return x\n\n\n"
        "def get_inputs():\n    return [torch.zeros(8), torch.tensor([1, 2]), torch.rand(2)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    write(tmp_path / "reference" / "index" / "inplace_update.py", source)
    write(tmp_path / "dataset.py", "")
    (problem,) = import_problems(tmp_path)[1]
    assert problem.contract.in_place == (0,)
    assert "_kbenv_writes = (0,)" in problem.source_judged("cpu")
