"""Every file in tests/honest is credited, whatever it looks like."""

from __future__ import annotations

import pytest

from kbenv.corpus import try_honest
from kbenv.evaluator import Evaluator
from kbenv.verdict import Verdict
from tests.judge.corpus import SANDBOXES, Case, as_parameters, at_small_sizes, load_cases, name_of, small

HONEST = load_cases("honest")
CUDA_HONEST = load_cases("honest/cuda")
UNDER_THE_FULL_PROTOCOL = ("c_openmp_ctypes", "weights_packed_once", "output_transposed_strides")


def evaluate(evaluator: Evaluator, case: Case) -> Verdict:
    """With the same draws in every run: that others pass as well is what `kbenv redteam` tells."""
    seeds = {
        "construction": 1, "redraw": 2, "transform": 3, "timed_base": 4,
        "standard": list(range(10, 10 + evaluator.protocol.standard_trials)),
        "hidden": list(range(20, 20 + len(evaluator.protocol.hidden_inputs))),
        "probes": list(range(30, 30 + len(evaluator.protocol.probes))),
    }  # fmt: skip
    cases = evaluator.admit(case.problem).cases
    given = {"cases": {one.name: seeds for one in cases}} if len(cases) > 1 else seeds
    return evaluator.evaluate(case.problem, case.source, seeds=given)


def assert_credited(case: Case, evaluator: Evaluator) -> None:
    """And as fast as the file claims, where it claims a speed."""
    outcome = try_honest(case, lambda: evaluate(evaluator, case))
    last = outcome.verdicts[-1]
    assert outcome.held, f"{outcome.said}\n{last.detail or ''}\n{(last.output or '')[-2000:]}"
    assert last.speedup is not None
    assert last.speedup.low <= last.speedup.value <= last.speedup.high


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("case", as_parameters(HONEST))
def test_an_honest_submission_is_credited(case, sandbox, get_evaluator):
    assert_credited(case, get_evaluator("hardened brisk", sandbox=sandbox))


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=name_of(c)) for c in HONEST if name_of(c) in UNDER_THE_FULL_PROTOCOL]
)
def test_an_honest_submission_is_credited_under_the_full_protocol(case, get_evaluator):
    assert_credited(case, get_evaluator("hardened"))


@pytest.mark.gpu
@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("case", as_parameters(CUDA_HONEST, "cuda:0"))
def test_an_honest_cuda_submission_is_credited(case, sandbox, get_evaluator):
    assert_credited(case, get_evaluator("hardened brisk", "cuda:0", sandbox))


@pytest.mark.gpu
def test_a_forward_that_waits_on_the_host_is_timed_by_the_open_clock(get_evaluator):
    case = next(case for case in CUDA_HONEST if name_of(case) == "item_in_forward")
    assert evaluate(get_evaluator("hardened brisk", "cuda:0"), case).clock == "judge-open"


def test_the_verdict_says_how_the_weights_came_to_agree(get_evaluator):
    evaluator = get_evaluator("hardened brisk")
    for name, way in (("weights_packed_once", "seed"), ("workspace_cached", "state_dict")):
        case = next(case for case in HONEST if case.name == name)
        assert evaluate(evaluator, at_small_sizes(case)).weights == way


def test_a_compiled_product_is_credited(get_evaluator):
    """By torch.compile, which needs no C++ compiler for it: see honest/torch_compile.py."""
    source = (
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.product = torch.compile(torch.matmul)\n\n    def forward(self, a, b):\n"
        "        return self.product(a, b)\n"
    )
    verdict = get_evaluator("hardened brisk").evaluate(small("core/level1/matmul"), source)
    assert verdict.credited, verdict.message
