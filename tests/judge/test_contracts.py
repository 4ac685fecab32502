"""Contracts beyond KernelBench's own, judged: what forward writes into, several floating types, several cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kbenv.errors import ReferenceFaultError
from kbenv.evaluator import Evaluator
from kbenv.problems.problem import Case, Comparator, Contract, Problem
from kbenv.protocol import get_protocol
from kbenv.verdict import Status
from tests.judge.evaluators import GetEvaluator

STEP = """\
import torch

rows = 64


class {name}(torch.nn.Module):
    def forward(self, state, x):
        {body}


def get_inputs():
    return [torch.randn(rows, 32), torch.randn(rows, 32)]


def get_init_inputs():
    return []
"""
IN_PLACE = "state.mul_(0.5).add_(x)\n        return state.sum(dim=1)"
ROWS_LEFT_OUT = "y = state + x\n        y[:{}] = 0\n        return y"
MIXED = """\
import dataclasses

import torch


@dataclasses.dataclass
class Packed:
    codes: torch.Tensor
    scale: torch.Tensor


class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 32, dtype=torch.bfloat16))

    def forward(self, x, packed):
        {body}


def get_inputs():
    codes = torch.randn(16, 32).to(torch.float8_e4m3fn)
    return [torch.randn(64, 32, dtype=torch.bfloat16), Packed(codes, 0.5 + torch.rand(16, 1))]


def get_init_inputs():
    return []
"""
PRODUCT = (
    "assert (x.dtype, packed.codes.dtype, packed.scale.dtype, self.weight.dtype) == "
    "(torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.bfloat16)\n"
    "        return x @ (packed.codes.float() * packed.scale).to(x.dtype).T @ self.weight"
)


def problem(source: str, **fields: object) -> Problem:
    return Problem(id="test/contract", name="contract", level=None, source=source, **fields)  # type: ignore[arg-type]


@pytest.fixture
def evaluator(get_evaluator: GetEvaluator) -> Evaluator:
    return get_evaluator("verified tight")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Evaluator]:
    with Evaluator(protocol="kernelbench", device="cpu", sandbox="process", effort="quick") as evaluator:
        yield evaluator


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (IN_PLACE, Status.PASSED),
        ("new = 0.5 * state + x\n        return new.sum(dim=1)", Status.WRONG_VALUE),  # the state stays as it was
        ("state.mul_(0.5)\n        return (state + x).sum(dim=1)", Status.WRONG_VALUE),
        ("x.zero_()\n        return state.sum(dim=1)", Status.ILLEGAL_ACCESS),  # of that it was not said
    ],
)
def test_what_becomes_of_an_argument_that_may_be_written_into_is_judged(
    evaluator: Evaluator, body: str, status: Status
) -> None:
    one = problem(STEP.format(name="Model", body=IN_PLACE), contract=Contract(in_place=(0,)))
    assert evaluator.evaluate(one, STEP.format(name="ModelNew", body=body)).status is status


def test_an_argument_that_is_not_there_is_a_fault_of_the_problem(evaluator: Evaluator) -> None:
    one = problem(STEP.format(name="Model", body=IN_PLACE), contract=Contract(in_place=(0, 2)))
    with pytest.raises(ReferenceFaultError, match="writes into argument 2, counted from 0; get_inputs gives 2"):
        evaluator.evaluate(one, STEP.format(name="ModelNew", body=IN_PLACE))


def test_several_floating_types_and_records_arrive_as_they_were_made() -> None:
    one = problem(MIXED.format(name="Model", body=PRODUCT), contract=Contract(dtype="mixed"))
    assert one.own_precision == "bf16"
    rules = get_protocol("verified", "bf16").with_effort("quick")
    with Evaluator(protocol=rules, device="cpu", sandbox="process") as evaluator:
        assert evaluator.evaluate(one, MIXED.format(name="ModelNew", body=PRODUCT)).credited
        wrong = PRODUCT.replace("packed.codes.float()", "0.9 * packed.codes.float()")
        assert evaluator.evaluate(one, MIXED.format(name="ModelNew", body=wrong)).status is Status.WRONG_VALUE


def test_a_kernel_for_one_shape_fails_where_a_hidden_case_has_another(evaluator: Evaluator) -> None:
    forward = "return state * 2.0 + x"
    cases = (Case("shown", "perf", {"rows": 64}), Case("odd", "hidden", {"rows": 13}))
    one = replace(problem(STEP.format(name="Model", body=forward)), cases=cases)
    assert evaluator.evaluate(one, STEP.format(name="ModelNew", body=forward)).credited
    special = "return state * 2.0 + x if len(x) % 32 == 0 else x"
    verdict = evaluator.evaluate(one, STEP.format(name="ModelNew", body=special))
    assert verdict.status is Status.WRONG_HIDDEN
    assert verdict.message.startswith("case odd: ")


CHECKER = """

def _kbenv_check(arguments, output):
    (state, x), (output, second) = arguments, output
    return bool((second == x).all()) and bool((output.abs() - (state + x).abs()).abs().max() < 1e-4)
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return state + x, x.clone()", Status.PASSED),
        ("return -(state + x), x.clone()", Status.PASSED),  # the reference gives another, and the checker takes both
        ("return state - x, x.clone()", Status.WRONG_VALUE),
    ],
)
def test_a_set_s_own_checker_decides_where_there_is_one(evaluator: Evaluator, body: str, status: Status) -> None:
    one = problem(
        STEP.format(name="Model", body="return state + x, x.clone()") + CHECKER,
        contract=Contract(comparator=Comparator("custom"), in_place=()),
    )
    assert evaluator.evaluate(one, STEP.format(name="ModelNew", body=body)).status is status


@pytest.mark.parametrize(
    ("noise", "status"), [("0.0", Status.PASSED), ("0.02", Status.PASSED), ("0.5", Status.WRONG_VALUE)]
)
def test_metrics_of_whole_outputs_stand_for_a_tolerance(evaluator: Evaluator, noise: str, status: Status) -> None:
    thresholds = {"cosine_sim": 0.95, "l1_relative": 0.05, "rmse": 0.1}
    one = problem(
        STEP.format(name="Model", body="return state + x"),
        contract=Contract(comparator=Comparator("metrics", thresholds)),
    )
    noisy = f"return state + x + {noise} * torch.randn_like(x) * x.abs().clamp(max=1.0)"
    verdict = evaluator.evaluate(one, STEP.format(name="ModelNew", body=noisy))
    assert verdict.status is status
    assert ("output 0: l1_relative is " in verdict.message) is (status is Status.WRONG_VALUE)


DROPOUT = """\
import torch


class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.5))

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return self.inner(x)", Status.PASSED),
        ("n = self.inner[0]\n        return (x - n.running_mean) * (n.running_var + n.eps).rsqrt() * n.weight + n.bias",
         Status.PASSED),
        ("assert not (self.training or self.inner[1].training)\n        return self.inner(x)", Status.PASSED),
        ("return self.inner.train()(x)", Status.WRONG_VALUE),
    ],
)  # fmt: skip
def test_reference_and_submission_are_in_evaluation_mode_where_the_problem_says_so(
    evaluator: Evaluator, body: str, status: Status
) -> None:
    source = DROPOUT.format(name="Model", body="return self.inner(x)")
    one = problem(source, contract=Contract(mode="eval"))
    assert evaluator.evaluate(one, DROPOUT.format(name="ModelNew", body=body)).status is status
    if "train" not in body:
        verdict = evaluator.evaluate(problem(source), DROPOUT.format(name="ModelNew", body=body))
        assert verdict.status is Status.WRONG_VALUE  # dropout falls elsewhere in every call
        assert verdict.reference_random


@pytest.mark.parametrize(
    ("comparator", "body", "status"),
    [
        (Comparator("allclose", {"absolute": 0.05, "relative": 0.0}), "return state + x + 0.04", Status.PASSED),
        (Comparator("allclose", {"absolute": 0.05, "relative": 0.0}), "return state + x + 0.06", Status.WRONG_VALUE),
        (Comparator(), "return state + x + 0.04", Status.WRONG_VALUE),
        (Comparator("matched", {"share": 0.9}), ROWS_LEFT_OUT.format(3), Status.PASSED),
        (Comparator("matched", {"share": 0.9}), ROWS_LEFT_OUT.format(9), Status.WRONG_VALUE),
        (Comparator("matched", {"share": 0.9, "cap": 0.1}), ROWS_LEFT_OUT.format(3), Status.WRONG_VALUE),
    ],
)  # fmt: skip
def test_a_set_s_own_tolerance_holds_where_the_protocol_asks_for_it(
    upstream: Evaluator, comparator: Comparator, body: str, status: Status
) -> None:
    one = problem(STEP.format(name="Model", body="return state + x"), contract=Contract(comparator=comparator))
    verdict = upstream.evaluate(one, STEP.format(name="ModelNew", body=body))
    assert verdict.status is status
    own = comparator.parameters
    tolerance = verdict.protocol.tolerance
    assert (tolerance.absolute, tolerance.share) == (own.get("absolute", 1e-4), own.get("share", 1.0))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return state + x", Status.PASSED),
        ("return (state + x) * (1.0 + 2.0**-23)", Status.WRONG_VALUE),  # within any tolerance, and not equal
    ],
)
def test_exactly_equal_is_equal_in_every_bit(evaluator: Evaluator, body: str, status: Status) -> None:
    one = problem(STEP.format(name="Model", body="return state + x"), contract=Contract(comparator=Comparator("exact")))
    assert evaluator.evaluate(one, STEP.format(name="ModelNew", body=body)).status is status
