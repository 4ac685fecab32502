"""Each status is reached by a real submission, and the verdict says why."""

from __future__ import annotations

import pytest

from kbenv.verdict import Status, Verdict
from tests.judge.corpus import SANDBOXES, Case, as_parameters, load_cases, name_of
from tests.judge.evaluators import limited_for

CASES = load_cases("statuses")
CUDA_CASES = load_cases("statuses/cuda")


def evaluate(case: Case, get_evaluator, device: str = "cpu", sandbox: str = "process") -> Verdict:
    rules = "verified brisk" if case.constants.get("SLOW") else "verified tight"
    evaluator = get_evaluator(rules, device, sandbox, **case.constants.get("PROTOCOL", {}))
    with limited_for(case, evaluator):
        return evaluator.evaluate(case.problem, case.source)


def assert_as_expected(case: Case, verdict: Verdict) -> None:
    text = f"{verdict.message}\n{verdict.detail or ''}"
    assert verdict.status.value in case.expect, f"{verdict.status}: {text}"
    assert case.constants.get("SAYS", "") in text
    assert verdict.credited == (verdict.status is Status.PASSED)
    assert verdict.message.strip()
    assert "\n" not in verdict.message


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("case", as_parameters(CASES))
def test_a_status_is_reached_by_a_real_submission(case, sandbox, get_evaluator):
    assert_as_expected(case, evaluate(case, get_evaluator, sandbox=sandbox))


@pytest.mark.gpu
@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("case", as_parameters(CUDA_CASES, "cuda:0"))
def test_a_status_is_reached_by_a_real_cuda_submission(case, sandbox, get_evaluator):
    assert_as_expected(case, evaluate(case, get_evaluator, "cuda:0", sandbox))


def test_an_answer_without_code_is_a_format_error_and_runs_nothing(get_evaluator):
    verdict = get_evaluator("verified tight").format_error("core/level1/relu", "the answer holds no code block")
    assert verdict.status is Status.FORMAT_ERROR
    assert not verdict.credited
    assert verdict.isolation is None


def test_every_status_has_a_submission():
    reached = {status for case in CASES for status in case.expect}
    assert reached | {"FORMAT_ERROR"} == {status.value for status in Status}


def test_a_wrong_value_comes_with_its_evidence(get_evaluator):
    case = next(case for case in CASES if name_of(case) == "wrong_value")
    verdict = evaluate(case, get_evaluator)
    failed = [check for check in verdict.checks if check.passed is False]
    assert len(failed) == 1
    evidence = failed[0].evidence
    assert evidence["max_abs_error"] > 0
    assert 0 < evidence["mismatched"] <= evidence["elements"]


@pytest.mark.corpus  # half a minute each
@pytest.mark.corpus_3
@pytest.mark.parametrize("place", ["__init__", "forward"])
def test_who_does_nothing_is_not_waited_for_as_long_as_who_compiles(place: str, get_evaluator) -> None:
    call = "def __init__(self):\n        super().__init__()" if place == "__init__" else "def forward(self, x):"
    source = f"import time\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    {call}\n        time.sleep(3600)\n"
    evaluator = get_evaluator("verified brisk")
    assert evaluator.protocol.limits.build_s >= 300
    verdict = evaluator.evaluate("core/level1/relu", source)
    assert verdict.status is Status.TIMEOUT
    assert verdict.message == "no answer, and no work for one, within 30 s"
