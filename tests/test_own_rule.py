"""Metrics of whole outputs: what each of them refuses, and what none may hide."""

from __future__ import annotations

import math

import pytest
import torch

from kbenv.sandbox.judge.own_rule import compare_metrics
from kbenv.sandbox.layout import Arena, Layout, leaf_of

THRESHOLDS = {"cosine_sim": 0.95, "l1_relative": 0.05, "rmse": 0.1}
EXPECTED = torch.tensor([1.0, -2.0, 3.0, -4.0] * 64)


def wrong(expected: torch.Tensor, found: torch.Tensor, thresholds: dict[str, float] = THRESHOLDS) -> int:
    layout = Layout([leaf_of(expected)])
    arenas = [Arena(torch.zeros(layout.slot_bytes, dtype=torch.uint8), layout, 1) for _ in range(2)]
    for arena, value in zip(arenas, (expected, found), strict=True):
        arena.views(0)[0].copy_(value)
    comparison = compare_metrics(*arenas, 0, thresholds, "cpu")
    assert comparison.elements == expected.numel()
    return comparison.mismatched


def test_what_is_near_in_all_of_them_is_right() -> None:
    assert wrong(EXPECTED, EXPECTED) == 0
    assert wrong(EXPECTED, EXPECTED + 0.05) == 0


@pytest.mark.parametrize("name", THRESHOLDS)
def test_each_of_them_refuses_by_itself(name: str) -> None:
    found = EXPECTED.roll(1)
    assert wrong(EXPECTED, found, {name: THRESHOLDS[name]}) == EXPECTED.numel()
    assert wrong(EXPECTED, found, {}) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_stand_where_the_reference_s_do(value: float) -> None:
    found = EXPECTED.clone()
    found[7] = value
    assert wrong(EXPECTED, found)
    assert wrong(found, EXPECTED)
    assert wrong(found, found) == 0


def test_infinities_of_another_sign_are_wrong() -> None:
    expected, found = EXPECTED.clone(), EXPECTED.clone()
    expected[3], found[3] = math.inf, -math.inf
    assert wrong(expected, found)


def test_zeros_are_like_zeros_alone() -> None:
    zeros = torch.zeros(16)
    assert wrong(zeros, zeros) == 0
    assert wrong(zeros, torch.full((16,), 1e-3))


def test_integers_must_be_equal() -> None:
    codes = torch.arange(64, dtype=torch.int8)
    assert wrong(codes, codes) == 0
    assert wrong(codes, codes + (codes == 5)) == 64
