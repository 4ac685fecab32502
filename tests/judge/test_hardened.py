"""The hardened protocol judges real submissions: what holds for its draws alone fails, honest rewrites do not."""

from __future__ import annotations

import pytest

from kbenv.evaluator import Evaluator
from kbenv.problems.problem import Problem
from kbenv.verdict import Status, Verdict
from tests.judge.corpus import small
from tests.judge.evaluators import GetEvaluator

NORM = Problem(
    id="test/norm", name="norm", level=None,
    source='''import torch


class Model(torch.nn.Module):
    """An affine normalisation of rows, whose scale and bias construction leaves at 1 and 0, then a ReLU."""

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.rand(32, 256)]


def get_init_inputs():
    return [256]
''',
)  # fmt: skip

RENAMED = NORM.source.replace("class Model(", "class ModelNew(").replace("self.norm", "self.layer")
PACKED = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        norm = torch.nn.LayerNorm(width)
        self.packed = torch.stack([norm.weight, norm.bias]).detach().clone()

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return torch.clamp(scaled * self.packed[0] + self.packed[1], min=0)
"""
SUMS_OF_SQUARES = PACKED.replace("        scaled", "        mean = x.mean(-1, keepdim=True)\n        scaled").replace(
    "centred.square().mean(-1, keepdim=True)", "(x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)"
)
UNSCALED = PACKED.replace("scaled * self.packed[0] + self.packed[1]", "scaled")
IN_BFLOAT16 = PACKED.replace("x.mean", "x.bfloat16().float().mean").replace("x - ", "x.bfloat16().float() - ")
IF_SMALL = PACKED.replace(
    "        centred", "        x = x if bool(x.abs().max() < 100) else x.half().float()\n        centred", 1
)
NOT_WHEN_TIMED = PACKED.replace(
    "        centred",
    "        self.calls = getattr(self, 'calls', 0) + 1\n"
    "        if self.calls > 60:\n"
    "            return torch.zeros_like(x)\n"
    "        centred",
    1,
)


@pytest.fixture
def hardened(get_evaluator: GetEvaluator) -> Evaluator:
    """At quick effort, and without the rule that a kernel is custom."""
    return get_evaluator("hardened brisk")


def judge(hardened: Evaluator, source: str) -> Verdict:
    return hardened.evaluate(NORM, source)


@pytest.mark.parametrize(
    "source", [RENAMED, PACKED, SUMS_OF_SQUARES],
    ids=["renamed", "packed in its constructor", "its variance from sums of squares"],
)  # fmt: skip
def test_an_honest_rewrite_is_credited(hardened, source):
    verdict = judge(hardened, source)
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.weights == "seed"
    passed = [check.name for check in verdict.checks if check.passed]
    assert {"hidden-rows", "hidden-outliers", "hidden-signs", "hidden-large", "timed-outputs"} <= set(passed)


@pytest.mark.parametrize(
    ("source", "status"),
    [(UNSCALED, Status.WRONG_VALUE), (IN_BFLOAT16, Status.WRONG_VALUE), (IF_SMALL, Status.WRONG_HIDDEN),
     (NOT_WHEN_TIMED, Status.WRONG_HIDDEN)],
    ids=["without its scale and bias", "inputs in bfloat16", "half precision for large inputs", "zeros later on"],
)  # fmt: skip
def test_a_shortcut_is_not(hardened, source, status):
    verdict = judge(hardened, source)
    assert verdict.status is status, verdict.message
    assert not verdict.credited


def test_a_verdict_replays_with_its_own_seeds(hardened):
    first = judge(hardened, UNSCALED)
    again = hardened.evaluate(NORM, UNSCALED, seeds=first.seeds)
    other = judge(hardened, UNSCALED)
    drawn = [{**verdict.seeds, "timed_count": None} for verdict in (first, again, other)]  # how often depends on speed
    assert drawn[0] == drawn[1] != drawn[2]
    assert again.checks[0].evidence == first.checks[0].evidence != other.checks[0].evidence


def test_a_softmax_whose_maximum_begins_at_zero_is_not(hardened):
    """It is right until all of a row is far below zero."""
    source = """import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True){})
        return e / e.sum(-1, keepdim=True)
"""
    softmax = small("core/level1/softmax")
    wrong = hardened.evaluate(softmax, source.format(".clamp(min=0)"))
    assert wrong.status is Status.WRONG_HIDDEN, wrong.message
    failed = next(check for check in wrong.checks if check.passed is False)
    assert failed.name == "hidden-far-below"
    by_rand = Problem(
        id="test/softmax", name="softmax", level=None,
        source=source.format("").replace("ModelNew", "Model")
        + "\n\ndef get_inputs():\n    return [torch.rand(64, 300)]\n\n\ndef get_init_inputs():\n    return []\n",
    )  # fmt: skip
    assert hardened.evaluate(by_rand, source.format(".clamp(min=0)")).status is Status.WRONG_HIDDEN
    right = hardened.evaluate(softmax, source.format(""))
    assert right.status is Status.PASSED, right.message
    assert next(check for check in right.checks if check.name == "hidden-far-below").passed
