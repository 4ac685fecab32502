"""What the judge makes of references: their faults, their randomness, integer inputs, nested outputs, TF32 baselines.

The TF32 problem stands in for a GPU's: its reference is less exact when the TF32 flag is on, as a convolution's is.
"""

from __future__ import annotations

import pytest

from kbenv.errors import DeviceMemoryError, ReferenceFaultError
from kbenv.problems.problem import Problem
from kbenv.sandbox.judge.seeds import DRAWN_ON_DEVICE
from kbenv.verdict import Status
from tests.judge.evaluators import GetEvaluator

HEAD = "import torch\n\n\nclass Model(torch.nn.Module):\n"
TAIL = "\n\ndef get_init_inputs():\n    return []\n"


def problem(body: str, inputs: str = "[torch.randn(64, 256)]", **fields: object) -> Problem:
    source = f"{HEAD}{body}\n\n\ndef get_inputs():\n    return {inputs}\n{TAIL}"
    return Problem(id="test/problem", name="problem", level=None, source=source, **fields)  # type: ignore[arg-type]


def submission(problem: Problem) -> str:
    return problem.source.replace("class Model(", "class ModelNew(")


INEXACT = problem(
    "    def forward(self, x):\n"
    "        flag = torch.backends.cuda.matmul.allow_tf32\n"
    "        return torch.sin(x) + (0.002 * torch.cos(7 * x) if flag else 0.0)"
)


def test_a_baseline_outside_the_tolerance_itself_is_credited_and_the_verdict_says_how(
    get_evaluator: GetEvaluator,
) -> None:
    verdict = get_evaluator("verified brisk").evaluate(INEXACT, submission(INEXACT))
    assert verdict.status is Status.PASSED
    widened = [check.evidence["tolerance_widened_to"] for check in verdict.checks if check.name != "inputs-unchanged"]
    assert all(0.003 < float(str(value)) <= 0.0041 for value in widened)
    assert verdict.tf32["submission"] == verdict.tf32["reference_timing"] != verdict.tf32["reference_correctness"]


@pytest.mark.parametrize(("error", "status"), [(0.0, Status.PASSED), (0.006, Status.WRONG_VALUE)])
def test_the_widened_tolerance_admits_the_exact_result_and_no_larger_error(
    get_evaluator: GetEvaluator, error: float, status: Status
) -> None:
    source = submission(problem(f"    def forward(self, x):\n        return torch.sin(x) + {error}"))
    assert get_evaluator("verified brisk").evaluate(INEXACT, source).status is status


def test_an_exact_baseline_leaves_the_tolerance_as_it_is(get_evaluator: GetEvaluator) -> None:
    exact = problem("    def forward(self, x):\n        return torch.sin(x)")
    source = submission(exact).replace("torch.sin(x)", "torch.sin(x) + 0.003")
    verdict = get_evaluator("verified brisk").evaluate(exact, source)
    assert verdict.status is Status.WRONG_VALUE
    assert "tolerance_widened_to" not in verdict.checks[0].evidence


def test_integer_targets_stay_integers_and_a_tuple_comes_back_as_one(get_evaluator: GetEvaluator) -> None:
    classes = problem(
        "    def forward(self, x, y):\n"
        "        assert y.dtype == torch.int64\n"
        "        return torch.nn.functional.cross_entropy(x, y), (x.argmax(1), x.amax(1))",
        "[torch.rand(64, 10), torch.randint(0, 10, (64,))]",
    )
    verdict = get_evaluator("verified brisk").evaluate(classes, submission(classes))
    assert verdict.status is Status.PASSED, verdict.message
    wrong = submission(classes).replace("x.argmax(1)", "x.argmax(1) + 1")
    assert get_evaluator("verified brisk").evaluate(classes, wrong).status is Status.WRONG_VALUE
    flat = submission(classes).replace("(x.argmax(1), x.amax(1))", "x.argmax(1)")
    assert get_evaluator("verified brisk").evaluate(classes, flat).status is Status.WRONG_SHAPE


def test_a_distribution_on_which_the_reference_is_not_finite_is_dropped_and_named(get_evaluator: GetEvaluator) -> None:
    logarithm = problem("    def forward(self, x):\n        return torch.log(x)", "[torch.rand(64, 64) + 0.5]")
    verdict = get_evaluator("verified brisk").evaluate(logarithm, submission(logarithm))
    assert verdict.status is Status.PASSED
    (dropped,) = [check for check in verdict.checks if check.passed is None]
    assert dropped.name == "hidden-D4"
    assert "NaN or infinite" in str(dropped.evidence["dropped"])


def test_infinities_of_the_reference_itself_must_be_reproduced(get_evaluator: GetEvaluator) -> None:
    masked = problem("    def forward(self, x):\n        return x.masked_fill(x > 1, float('-inf'))")
    assert get_evaluator("verified brisk").evaluate(masked, submission(masked)).status is Status.PASSED
    finite = submission(masked).replace("float('-inf')", "-1e30")
    assert get_evaluator("verified brisk").evaluate(masked, finite).status is Status.WRONG_VALUE


@pytest.mark.parametrize(
    "body",
    [
        "    def forward(self, x):\n        raise RuntimeError('the reference is broken')",
        "    def forward(self, x):\n        assert (x[0, 0] > 0) == (x.abs().max() < 0)\n        return x",
        "    def forward(self, x):\n        assert x.abs().mean() > 0.1\n        return x",
    ],
    ids=["always", "at once", "on one hidden distribution"],
)
def test_a_reference_that_raises_is_a_fault_and_never_a_pass(get_evaluator: GetEvaluator, body: str) -> None:
    broken = problem(body)
    echo = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clone()\n"
    with pytest.raises(ReferenceFaultError, match="the problem's reference failed"):
        get_evaluator("verified brisk").evaluate(broken, echo)


def test_a_failure_that_the_problem_records_drops_the_distribution(get_evaluator: GetEvaluator) -> None:
    body = "    def forward(self, x):\n        assert x.abs().mean() > 0.1\n        return x * 2"
    recorded = problem(body, dropped={"D3": "the reference refuses small numbers"})
    verdict = get_evaluator("verified brisk").evaluate(recorded, submission(recorded))
    assert verdict.status is Status.PASSED
    assert [check.name for check in verdict.checks if check.passed is None] == ["hidden-D3"]


def test_inputs_that_cannot_be_drawn_on_the_cpu_are_drawn_on_the_device(get_evaluator: GetEvaluator) -> None:
    # The device is a CPU here: where it is asked for, a device is in use by `with`, as the problem's "kernel" wants it.
    on_device = "bool(torch.overrides._get_current_function_mode()) or 1 / 0"
    picky = problem("    def forward(self, x):\n        return torch.sin(x)", f"[torch.randn(64, 256) * ({on_device})]")
    evaluator = get_evaluator("kernelbench brisk")
    verdict = evaluator.evaluate(picky, submission(picky))
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.flags.count(DRAWN_ON_DEVICE) == 1
    plain = problem("    def forward(self, x):\n        return torch.sin(x)")
    assert DRAWN_ON_DEVICE not in evaluator.evaluate(plain, submission(plain)).flags
    broken = problem("    def forward(self, x):\n        return x / 0 if x.is_cuda else 1 / 0")
    with pytest.raises(ReferenceFaultError, match="ZeroDivisionError"):
        evaluator.evaluate(broken, submission(plain))


def test_a_random_reference_is_flagged(get_evaluator: GetEvaluator) -> None:
    random = problem("    def forward(self, x):\n        return torch.nn.functional.dropout(x, 0.5)")
    verdict = get_evaluator("verified brisk").evaluate(random, submission(random))
    assert verdict.status is Status.WRONG_VALUE
    assert verdict.reference_random
    assert any("random" in flag for flag in verdict.flags)


def test_a_job_that_cannot_fit_says_need_and_have(get_evaluator: GetEvaluator) -> None:
    limits = get_evaluator("verified brisk").protocol.limits.model_copy(update={"device_memory_bytes": 1 << 20})
    plain = problem("    def forward(self, x):\n        return torch.relu(x)")
    with pytest.raises(DeviceMemoryError, match=r"needs \d.* GiB .*have \d.* GiB free"):
        get_evaluator("verified brisk", limits=limits).evaluate(plain, submission(plain))


def test_weights_come_from_the_references_state_when_names_match_else_from_the_seed(
    get_evaluator: GetEvaluator,
) -> None:
    linear = problem(
        "    def __init__(self):\n        super().__init__()\n        self.linear = torch.nn.Linear(256, 32)\n\n"
        "    def forward(self, x):\n        return self.linear(x)"
    )
    verdict = get_evaluator("verified brisk").evaluate(linear, submission(linear))
    assert (verdict.status, verdict.weights) == (Status.PASSED, "state_dict")
    renamed = submission(linear).replace("self.linear", "self.projection")
    verdict = get_evaluator("verified brisk").evaluate(linear, renamed)
    assert (verdict.status, verdict.weights) == (Status.PASSED, "seed")
    reordered = submission(linear).replace("super().__init__()", "super().__init__()\n        torch.rand(7)")
    verdict = get_evaluator("verified brisk").evaluate(linear, reordered)
    assert (verdict.status, verdict.weights) == (Status.PASSED, "state_dict")
    plain = problem("    def forward(self, x):\n        return torch.relu(x)")
    assert get_evaluator("verified brisk").evaluate(plain, submission(plain)).weights == "none"


VIEW = problem("    def forward(self, x):\n        return x[:, ::2], x.mT")
MADE_DENSE = problem("    def forward(self, x):\n        return x.contiguous()", "[torch.randn(64, 512)[:, ::2]]")
COPY = problem("    def forward(self, x):\n        return x.clone()")


@pytest.mark.parametrize("returning", [VIEW, MADE_DENSE], ids=["views", "as slots hold it"])
def test_a_reference_that_returns_parts_of_its_input_is_right_as_its_own_submission(
    returning: Problem, get_evaluator: GetEvaluator,
) -> None:  # fmt: skip
    verdict = get_evaluator("hardened brisk").evaluate(returning, submission(returning))
    assert verdict.status is Status.PASSED, verdict.message


def test_what_is_right_only_while_the_inputs_are_there_is_told_so(get_evaluator: GetEvaluator) -> None:
    source = submission(COPY).replace("x.clone()", "x")
    verdict = get_evaluator("hardened brisk").evaluate(COPY, source)
    assert verdict.status is Status.WRONG_VALUE
    assert "only as long as the inputs are there" in verdict.message
    assert [check.passed for check in verdict.checks if check.stage == "standard"] == [True] * 4 + [False]
    assert get_evaluator("hardened brisk").evaluate(COPY, submission(COPY)).status is Status.PASSED
