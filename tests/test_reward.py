"""Rewards are pure, bounded where they say so, monotone in the speedup, and nothing for what is not credited."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.errors import UsageError
from kbenv.protocol import get_protocol
from kbenv.reward import (
    REWARDS,
    correct,
    credited_speedup,
    discounted,
    expect_needs,
    fast_p,
    get_reward,
    kernelgym,
    kevin,
    tiers,
    verified,
)
from kbenv.verdict import Status, Verdict
from tests.fakes import make_plausibility, make_provenance, make_verdict

ratios = st.floats(min_value=1e-6, max_value=1e6)


FAILED = {name: -1.0 if name == "tiers" else 0.0 for name in REWARDS}


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_is_not_credited_gets_one_and_the_same_number(name: str, status: Status) -> None:
    assert REWARDS[name](make_verdict(status)) == FAILED[name]


@pytest.mark.parametrize("name", REWARDS)
def test_a_right_and_fast_source_without_custom_kernel_gets_nothing(name: str) -> None:
    assert REWARDS[name](make_verdict(Status.NO_CUSTOM_KERNEL, speedup=100.0)) == FAILED[name]


@pytest.mark.parametrize("name", REWARDS)
@given(speedup=ratios, memory=ratios)
def test_every_credited_verdict_gets_more_than_a_failed_one(name: str, speedup: float, memory: float) -> None:
    reward = REWARDS[name](make_verdict(speedup=speedup, memory=memory))
    assert isinstance(reward, float)
    assert math.isfinite(reward)
    if name == "fast_p" and speedup <= 1:
        assert reward == 0
    else:
        assert reward > max(FAILED[name], 0)


def test_where_the_interval_says_little_its_lower_end_is_what_is_earned() -> None:
    def speedup(value: float, low: float, high: float) -> float:
        verdict = make_verdict(speedup=value)
        assert verdict.speedup is not None
        measured = verdict.speedup.model_copy(update={"value": value, "low": low, "high": high})
        return credited_speedup(verdict.model_copy(update={"speedup": measured}))

    assert speedup(14534.9, 0.0049, 1e14) == 0.0049
    assert speedup(2.0, 0.9, 3.7) == 0.9
    assert speedup(2.0, 1.0, 4.0) == 2.0


@given(speedup=ratios, memory=ratios)
def test_verified_is_bounded(speedup: float, memory: float) -> None:
    assert 0.05 <= verified(make_verdict(speedup=speedup, memory=memory)) <= 1.55


@pytest.mark.parametrize("name", REWARDS)
@given(first=ratios, second=ratios, memory=ratios)
def test_rewards_never_fall_as_the_speedup_grows(name: str, first: float, second: float, memory: float) -> None:
    slow, fast = sorted((first, second))
    reward = REWARDS[name]
    assert reward(make_verdict(speedup=slow, memory=memory)) <= reward(make_verdict(speedup=fast, memory=memory))


@given(first=ratios, second=ratios, speedup=ratios)
def test_verified_never_falls_as_the_memory_ratio_grows(first: float, second: float, speedup: float) -> None:
    heavy, lean = sorted((first, second))
    assert verified(make_verdict(speedup=speedup, memory=heavy)) <= verified(make_verdict(speedup=speedup, memory=lean))


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [(0.01, 0.1), (0.5, 0.25), (1.0, 0.5), (2.0, 0.75), (10.0, 1.3305), (16.0, 1.5), (1000.0, 1.5)],
)
def test_verified_has_the_documented_values(speedup: float, expected: float) -> None:
    assert verified(make_verdict(speedup=speedup)) == pytest.approx(expected, abs=1e-4)
    assert verified(make_verdict(speedup=speedup, memory=None)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 0.45), (0.5, 0.45), (2.0, 0.55), (8.0, 0.55)])
def test_memory_is_a_small_term(ratio: float, expected: float) -> None:
    assert verified(make_verdict(speedup=1.0, memory=ratio)) == pytest.approx(expected)


def test_kevin_is_a_bonus_plus_the_speedup() -> None:
    assert kevin(make_verdict(speedup=2.5)) == pytest.approx(2.8)


def with_floor(speedup: float, floor_ms: float | None) -> Verdict:
    """A credited verdict of 1 ms a call."""
    return make_verdict(speedup=speedup, plausibility=make_plausibility(floor_ms))


@pytest.mark.parametrize(
    ("speedup", "floor_ms", "counted"),
    [(8.0, None, 8.0), (8.0, 0.5, 8.0), (8.0, 1.0, 8.0), (8.0, 2.0, 4.0), (8.0, 8.0, 1.0), (0.5, 0.25, 0.5)],
)
def test_a_call_below_the_floor_counts_as_one_at_the_floor(
    speedup: float, floor_ms: float | None, counted: float
) -> None:
    verdict = with_floor(speedup, floor_ms)
    assert credited_speedup(verdict) == pytest.approx(counted)
    assert verified(verdict) == pytest.approx(verified(make_verdict(speedup=counted)))
    assert kevin(verdict) == pytest.approx(0.3 + counted)
    assert correct(verdict) == 1.0


@given(first=ratios, second=ratios, floor_ms=ratios)
def test_with_a_floor_rewards_never_fall_as_the_reference_takes_longer(
    first: float, second: float, floor_ms: float
) -> None:
    slow, fast = sorted((first, second))
    assert credited_speedup(with_floor(slow, floor_ms)) <= credited_speedup(with_floor(fast, floor_ms))
    assert verified(with_floor(slow, floor_ms)) <= verified(with_floor(fast, floor_ms))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_is_not_credited_has_no_credited_speedup(status: Status) -> None:
    assert credited_speedup(make_verdict(status)) == 0.0


def test_correct_is_one_whatever_the_speedup() -> None:
    assert correct(make_verdict(speedup=0.1)) == correct(make_verdict(speedup=10.0)) == 1.0


@pytest.mark.parametrize(
    ("speedup", "compiled_ms", "expected"),
    [
        (0.5, 9.0, 1.0),
        (1.0, 9.0, 1.0),
        (1.01, None, 2.0),
        (2.0, 1.0, 2.0),  # as fast as torch.compile
        (2.0, 1.05, 2.0),  # 4.8% faster
        (2.0, 1.06, 3.0),  # 5.7% faster
        (0.9, 1.2, 1.0),  # faster than torch.compile, which is slower than eager
    ],
)
def test_tiers_are_steps(speedup: float, compiled_ms: float | None, expected: float) -> None:
    assert tiers(make_verdict(speedup=speedup, compiled_reference_latency_ms=compiled_ms)) == expected


def test_tiers_take_a_call_below_the_floor_as_one_at_the_floor() -> None:
    below = make_verdict(speedup=8.0, plausibility=make_plausibility(8.0), compiled_reference_latency_ms=100.0)
    assert tiers(below) == 1.0  # 1 ms a call, 8 ms at the floor, which is the reference's own time


@given(first=ratios, second=ratios, compiled_ms=ratios)
def test_tiers_never_fall_as_torch_compile_gets_slower(first: float, second: float, compiled_ms: float) -> None:
    low, high = sorted((first, second))
    slow, fast = (make_verdict(speedup=compiled_ms, compiled_reference_latency_ms=ms) for ms in (low, high))
    assert tiers(slow) <= tiers(fast)


def test_tiers_need_a_protocol_that_times_torch_compile() -> None:
    with pytest.raises(UsageError, match="compiled_baseline=True"):
        expect_needs("tiers", get_protocol())
    expect_needs("tiers", get_protocol().model_copy(update={"compiled_baseline": True}))
    expect_needs("verified", get_protocol())


@given(speedup=ratios, p=ratios)
def test_fast_p_is_the_indicator_of_the_metric(speedup: float, p: float) -> None:
    assert fast_p(make_verdict(speedup=speedup), p) == (1.0 if speedup > p else 0.0)


@pytest.mark.parametrize(
    ("speedup", "share", "expected"),
    [(1.0, None, 1.0), (1.0, 0.4, 1.4), (2.0, 1.0, 2.5), (3.0, 0.0, 2.0), (50.0, 1.0, 3.0)],
)
def test_kernelgym_adds_what_custom_kernels_cover(speedup: float, share: float | None, expected: float) -> None:
    provenance = None if share is None else make_provenance(share)
    assert kernelgym(make_verdict(speedup=speedup, provenance=provenance)) == pytest.approx(expected)


@given(speedup=ratios, share=st.floats(0, 1))
def test_kernelgym_is_bounded(speedup: float, share: float) -> None:
    assert 0.5 <= kernelgym(make_verdict(speedup=speedup, provenance=make_provenance(share))) <= 3.0


def test_discounted_sums_what_follows() -> None:
    assert discounted([1.0, 0.0, 2.0]) == pytest.approx([1.0 + 0.16 * 2.0, 0.4 * 2.0, 2.0])
    assert discounted([1.0, 1.0], gamma=1.0) == pytest.approx([2.0, 1.0])
    assert discounted([3.0, 5.0], gamma=0.0) == [3.0, 5.0]
    assert discounted([]) == []


@given(st.lists(st.floats(-10, 10), max_size=8), st.floats(0, 1))
def test_discounted_satisfies_its_formula(rewards: list[float], gamma: float) -> None:
    expected = [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]
    assert discounted(rewards, gamma) == pytest.approx(expected, abs=1e-9)


def test_rewards_are_found_by_name() -> None:
    assert get_reward("verified") is verified


def test_an_unknown_reward_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="verified, kevin, tiers, fast_p, correct, kernelgym; found 'fast'"):
        get_reward("fast")
