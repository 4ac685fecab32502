"""Upstream's eval function by our judge: its signature, its fields, its words for what happened."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from kbenv.compat import kernelbench
from kbenv.compat.kernelbench import eval_kernel_against_ref, read_result
from kbenv.errors import SandboxError, UsageError
from kbenv.verdict import Stage, Status, Verdict
from tests.fakes import RELU_SOURCE, SUBMISSION_SOURCE, ScriptedEvaluator, make_verdict

UPSTREAM = {
    "original_model_src": inspect.Parameter.empty, "custom_model_src": inspect.Parameter.empty, "seed_num": 42,
    "num_correct_trials": 1, "num_perf_trials": 10, "measure_performance": False, "timing_method": "cuda_event",
    "verbose": False, "build_dir": None, "device": None, "backend": "cuda", "precision": "fp32",
    "check_for_excessive_speedup": True, "excessive_speedup_threshold": 10,
}  # fmt: skip
"""Its parameters in their order, with their defaults (KernelBench, src/kernelbench/eval.py, 2026): upstream's device is
the current GPU, and its precision torch.float32."""
FIELDS = ["compiled", "correctness", "metadata", "runtime", "runtime_stats", "ref_runtime", "ref_runtime_stats"]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of the evaluators that are made; the first verdict is `scripted.verdict`'s."""
    made: list[dict[str, Any]] = []

    def make(**options: Any) -> ScriptedEvaluator:
        made.append(options)
        return ScriptedEvaluator(outcomes)

    outcomes: list[Verdict | Exception] = [make_verdict(speedup=20.0)]
    monkeypatch.setattr(kernelbench, "Evaluator", make)
    kernelbench._evaluator.cache_clear()
    yield made  # type: ignore[misc]
    kernelbench._evaluator.cache_clear()


def test_the_signature_is_upstreams_with_ours_behind_it() -> None:
    parameters = inspect.signature(eval_kernel_against_ref).parameters
    positional = {n: p.default for n, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY}
    assert positional == UPSTREAM
    assert list(positional) == list(UPSTREAM)


def test_a_right_kernel_has_upstreams_fields(scripted: list[dict[str, Any]]) -> None:
    result = eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE, measure_performance=True, device=0)
    assert result is not None
    assert list(type(result).model_fields)[:7] == FIELDS
    assert (result.compiled, result.correctness) == (True, True)
    assert (result.runtime, result.ref_runtime) == (1.0, 20.0)
    assert result.runtime_stats == {
        "mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0, "num_trials": 20, "hardware": "Scripted CPU", "device": "cpu",
    }  # fmt: skip
    assert result.metadata["excessive_speedup"] is True
    assert result.verdict is not None


def test_without_measuring_there_are_upstreams_blanks(scripted: list[dict[str, Any]]) -> None:
    result = eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE)
    assert result is not None
    assert (result.runtime, result.runtime_stats, result.ref_runtime) == (-1.0, {}, -1.0)
    assert "excessive_speedup" not in result.metadata


def test_the_arguments_reach_the_rules(scripted: list[dict[str, Any]]) -> None:
    eval_kernel_against_ref(
        RELU_SOURCE, SUBMISSION_SOURCE, seed_num=7, num_correct_trials=3, num_perf_trials=50, verbose=True,
        device=torch.device("cuda:2"), precision=torch.bfloat16, check_for_excessive_speedup=False,
    )  # fmt: skip
    (options,) = scripted
    protocol = options["protocol"]
    assert (protocol.name, protocol.precision) == ("kernelbench", "bf16")
    assert (protocol.construction_seed, protocol.standard_trials, protocol.timing.timed_calls) == (7, 3, 50)
    assert options["device"] == "cuda:2"
    assert options["on_phase"] is not None
    eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE, protocol="verified", device="cpu")
    assert (scripted[1]["protocol"].name, scripted[1]["device"]) == ("verified", "cpu")
    assert scripted[1]["on_phase"] is None


def test_one_judge_serves_all_calls_under_the_same_rules(scripted: list[dict[str, Any]]) -> None:
    for _ in range(3):
        eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE, device="cpu")
    assert len(scripted) == 1


def test_no_verdict_is_none_as_upstream_says_try_again(
    scripted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernelbench, "Evaluator", lambda **_: ScriptedEvaluator([SandboxError("it coughed")]))
    assert eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE) is None
    assert "it coughed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "compiled", "said"),
    [
        (Status.COMPILE_ERROR, False, "compilation_error"),
        (Status.LOAD_ERROR, False, "compilation_error"),
        (Status.WRONG_VALUE, True, "correctness_issue"),
        (Status.WRONG_HIDDEN, True, "correctness_issue"),
        (Status.WRONG_SHAPE, True, "correctness_issue"),
        (Status.RUNTIME_ERROR, True, "runtime_error"),
        (Status.TIMEOUT, True, "runtime_error"),
        (Status.TAMPERED, True, "runtime_error"),
    ],
)
def test_what_failed_is_said_in_upstreams_words(status: Status, compiled: bool, said: str) -> None:
    result = read_result(make_verdict(status))
    assert (result.compiled, result.correctness) == (compiled, False)
    assert result.metadata[said] == f"{status}: scripted"
    assert result.metadata["kbenv_status"] == status.value
    assert result.runtime == -1.0


def test_a_build_that_timed_out_did_not_compile() -> None:
    assert not read_result(make_verdict(Status.TIMEOUT, stage=Stage.LOAD, checks=())).compiled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timing_method": "stopwatch"}, "timing_method"),
        ({"precision": torch.float64}, "precision must be one of"),
        ({"num_correct_trials": 0}, "at least 1"),
    ],
)
def test_what_means_nothing_is_refused(scripted: list[dict[str, Any]], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        eval_kernel_against_ref(RELU_SOURCE, SUBMISSION_SOURCE, **options)
