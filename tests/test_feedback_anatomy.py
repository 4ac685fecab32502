"""The anatomy of a wrong standard trial is told in words, and that of a hidden one never."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kbenv.feedback import render_feedback
from kbenv.sandbox.judge.anatomy import dissect
from kbenv.verdict import HIDDEN_STAGES, Check, Stage, Status, Verdict
from tests.fakes import make_verdict
from tests.test_anatomy import one_thread, randn
from tests.test_feedback import HIDDEN_TEXT, assert_golden

__all__ = ["one_thread"]

E = randn(512, 768)


def with_anatomy(expected: torch.Tensor, found: torch.Tensor, stage: Stage = Stage.STANDARD, **fields: Any) -> Verdict:
    """A verdict whose failed trial has the anatomy of these tensors, through JSON as the judge sends it."""
    status = fields.pop("status", Status.WRONG_VALUE)
    verdict = make_verdict(status, stage=stage)
    *before, failed = verdict.checks or (Check(name="hidden-D1", stage=stage, passed=False),)
    evidence = {**failed.evidence, "anatomy": dissect(expected, found, 1e-3, 1e-3).to_json()}
    checks = (*before, failed.model_copy(update={"evidence": evidence}))
    return Verdict.model_validate_json(verdict.model_copy(update={"checks": checks}).model_dump_json())


def tail() -> torch.Tensor:
    found = E.clone()
    found[:, 704:] = 0
    return found


def period() -> torch.Tensor:
    found = E.clone()
    found[:, 31::32] *= 2
    return found


@pytest.mark.parametrize(
    ("name", "found"),
    [("tail", tail()), ("period", period()), ("transposed", E.t().reshape(512, 768)), ("sum", E / 768)],
)
def test_a_wrong_trial_is_told_with_its_anatomy(name: str, found: torch.Tensor) -> None:
    assert_golden(f"anatomy-{name}", render_feedback(with_anatomy(E, found)))


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        (E, torch.full_like(E, torch.nan), "NaN or infinite"),
        (E, torch.full_like(E, 0.5), "all hold 0.5"),
        (E.relu(), E, "an activation or a mask is missing"),
        (E, E.abs(), "absolute values"),
        (E, E.flip(0), "reversed along axis 0"),
        (E, E.roll(-1, 1), "found[i] is expected[i + 1]"),
        (E, E.roll(2, 0), "found[i] is expected[i - 2]"),
        (E, E[:1].expand_as(E), "the same at every index along axis 0"),
        (E, E - randn(768, seed=5), "depends only on the index along axis 1: a term"),
        (E * (1.5 + torch.arange(768) / 768), E, "depends only on the index along axis 1: a factor"),
        (E[:, :512] + randn(512, seed=5), E[:, :512] + randn(512, 1, seed=5), "added along the wrong axis"),
        (E[:, :512].softmax(1), E[:, :512].softmax(0), "the reduction runs along the wrong axis"),
        (E + randn(512, 768, seed=6), E, "of the terms of each sum"),
        (E, E + randn(512, 768, seed=6), "other terms added"),
        (E, (E + 2e-3).half().float(), "The wrong elements are the expected ones plus 0.002"),
        (E, E.bfloat16().float(), "bfloat16 can hold"),
        (E, E + 0.01 * randn(512, 768, seed=6), "look like rounding"),
        (E, 2 * E + 1, "2 times the expected ones, plus 1"),
    ],
)
def test_every_hypothesis_has_its_words(expected: torch.Tensor, found: torch.Tensor, words: str) -> None:
    assert words in render_feedback(with_anatomy(expected, found))


@pytest.mark.parametrize("stage", sorted(HIDDEN_STAGES))
@pytest.mark.parametrize("status", [Status.WRONG_VALUE, Status.WRONG_HIDDEN])
def test_the_anatomy_of_a_hidden_trial_is_never_told(stage: Stage, status: Status) -> None:
    assert render_feedback(with_anatomy(E, tail(), stage, status=status)) == HIDDEN_TEXT


def test_the_anatomy_of_a_passed_or_hidden_check_is_not_told_by_a_right_verdict() -> None:
    right = make_verdict(speedup=2.0)
    anatomy = dissect(E, tail(), 1e-3, 1e-3).to_json()
    checks = tuple(check.model_copy(update={"evidence": {"anatomy": anatomy}}) for check in right.checks)
    assert render_feedback(right.model_copy(update={"checks": checks})) == render_feedback(right)


@pytest.mark.parametrize("anatomy", [None, 7, "x", [], {}, {"shape": [1]}])
def test_an_anatomy_of_another_form_is_left_out(anatomy: Any) -> None:
    failed = Check(name="standard-0", stage=Stage.STANDARD, passed=False, evidence={"anatomy": anatomy})
    plain = failed.model_copy(update={"evidence": {}})
    with_it, without = (make_verdict(Status.WRONG_VALUE, checks=(check,)) for check in (failed, plain))
    assert render_feedback(with_it) == render_feedback(without)
