"""PyTorch's own latencies, from a real judge on the CPU: eager, compiled, and what a variant that fails leaves."""

from __future__ import annotations

import textwrap

import pytest

from kbenv.baseline import VARIANTS
from kbenv.evaluator import Evaluator
from kbenv.problems.problem import Problem
from kbenv.reward import tiers
from tests.fakes import SUBMISSION_SOURCE, make_problem
from tests.judge.evaluators import GetEvaluator, make_protocol

PROBLEM = make_problem(source=make_problem().source.replace("rows = 64", "rows = 512"))
PRODUCT = make_problem(source=PROBLEM.source.replace("torch.relu(x)", "x @ x.mT"))
"""Compiled without a C++ compiler, which takes most of the time that torch.compile does."""


@pytest.mark.parametrize(
    "problem",
    [PRODUCT, pytest.param(PROBLEM, marks=[pytest.mark.corpus, pytest.mark.corpus_2])],
    ids=["product", "in C++"],
)
def test_every_variant_has_a_latency_a_peak_and_its_flags(get_evaluator: GetEvaluator, problem: Problem) -> None:
    baseline = get_evaluator("verified brisk").baseline(problem)
    assert list(baseline.variants) == list(VARIANTS)
    for name, variant in baseline.variants.items():
        assert variant.error is None
        assert variant.latency_ms is not None
        assert 0 < variant.latency_ms < 100
        assert len(variant.turns_ms) >= 3
        assert variant.clock == "judge-open"
        assert variant.tf32["matmul"] == ("ieee" if name in ("eager-fp32", "eager-default") else "tf32")
        assert (variant.tf32["conv"] == "tf32") == (name != "eager-fp32")
        assert variant.peak_bytes is None or variant.peak_bytes >= 512 * 128 * 4
    assert baseline.tf32_gain("eager-fp32") is not None
    assert baseline.machine[2] == baseline.software["torch"]


def test_a_variant_that_fails_says_why_and_leaves_the_others_alone() -> None:
    protocol = make_protocol("verified brisk")
    protocol = protocol.model_copy(update={"limits": protocol.limits.model_copy(update={"build_s": 0.05})})
    with Evaluator(protocol=protocol, device="cpu", sandbox="process") as evaluator:
        baseline = evaluator.baseline(PROBLEM, ["compiled", "eager-tf32"])
    assert baseline.variants["compiled"].latency_ms is None
    assert "no answer within 0.05 s" in (baseline.variants["compiled"].error or "")
    assert baseline.latency_ms("eager-tf32") is not None
    assert baseline.tf32_gain("eager-fp32") is None


def test_no_call_sees_the_inputs_that_a_turn_of_one_call_hid(get_evaluator: GetEvaluator) -> None:
    evaluator = get_evaluator("verified brisk")
    source = """
        import torch

        class Model(torch.nn.Module):
            def forward(self, index):
                return torch.nn.functional.embedding(index, torch.ones(1024, 256)).sum(1)

        def get_inputs():
            return [torch.randint(0, 1024, (1024, 64))]

        def get_init_inputs():
            return []
    """
    problem = make_problem(source=textwrap.dedent(source))
    assert evaluator.baseline(problem, ["eager-fp32"]).latency_ms("eager-fp32") is not None
    verdict = evaluator.evaluate(problem, problem.source.replace("class Model(", "class ModelNew("))
    assert verdict.credited, verdict.message
    assert verdict.measurement is not None
    assert verdict.measurement.calls_per_turn == 1


@pytest.mark.slow
def test_a_verdict_says_on_request_what_torch_compile_takes(get_evaluator: GetEvaluator) -> None:
    source = SUBMISSION_SOURCE.replace("x.clamp(min=0)", "torch.matmul(x, x.mT)")
    verdict = get_evaluator("verified brisk", compiled_baseline=True).evaluate(PRODUCT, source)
    assert verdict.credited, verdict.message
    assert verdict.compiled_reference_latency_ms is not None
    assert verdict.compiled_reference_latency_ms > 0
    assert "compiled-baseline" in verdict.seconds
    assert tiers(verdict) in (1.0, 2.0, 3.0)
    plain = get_evaluator("verified brisk").evaluate(PRODUCT, source)
    assert plain.compiled_reference_latency_ms is None
    assert "compiled-baseline" not in plain.seconds
