"""Metrics: worked by hand, true of every input where they claim to be, and the same as their definitions."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.metrics import (
    Corrected,
    Sample,
    Solved,
    bootstrap_interval,
    decompose,
    fast_p,
    fast_p_at_k,
    geometric_mean,
    geometric_mean_speedup,
    geometric_mean_speedup_of_all,
    memory_efficiency,
    merge_turns,
    pass_at_k,
    read_sample,
    share_that_raises_memory,
    summarise,
    summarise_groups,
)
from kbenv.verdict import Status
from tests.fakes import make_verdict

ratios = st.floats(min_value=1e-3, max_value=1e3)
perhaps = st.none() | ratios
rows = st.lists(perhaps, min_size=1, max_size=12)

CORRECT = [True, True, True, False]
SPEEDUP = [2.0, 1.0, 0.5, None]


def solved(*speedups: float | None, memory: float | None = 1.0, standard: bool = True, level: int = 1) -> Solved:
    samples = tuple(Sample(standard or x is not None, x, None if x is None else memory) for x in speedups)
    return Solved("a/problem", samples, level)


# -- one number over problems -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "expected"), [(0.0, 0.75), (0.5, 0.5), (0.8, 0.5), (1.0, 0.25), (2.0, 0.0)])
def test_fast_p_is_strict_and_counts_every_problem(p: float, expected: float) -> None:
    assert fast_p(CORRECT, SPEEDUP, p) == expected


def test_fast_p_takes_no_speedup_of_an_incorrect_problem() -> None:
    assert fast_p([False], [100.0], 1.0) == 0.0


@given(rows, ratios, ratios)
def test_fast_p_never_rises_with_p(speedups: list[float | None], first: float, second: float) -> None:
    low, high = sorted((first, second))
    correct = [x is not None for x in speedups]
    assert fast_p(correct, speedups, high) <= fast_p(correct, speedups, low) <= fmean(correct)


@pytest.mark.parametrize("function", [geometric_mean_speedup, geometric_mean_speedup_of_all, memory_efficiency])
def test_nothing_and_unequal_lengths_are_refused(function: object) -> None:
    for correct, values in (([], []), ([True], [1.0, 2.0])):
        with pytest.raises(ValueError, match="problem"):
            function(correct, values)  # type: ignore[operator]
        with pytest.raises(ValueError, match="problem"):
            fast_p(correct, values, 1.0)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(5, 0, 1, 0.0), (5, 2, 1, 0.4), (5, 2, 2, 0.7), (5, 2, 4, 1.0), (5, 1, 5, 1.0), (10, 3, 5, 1 - 21 / 252)],
)
def test_pass_at_k_has_the_values_worked_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(min(chosen) < c for chosen in subsets) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 6), (5, 2, 0), (0, 0, 1)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be from"):
        pass_at_k(n, c, k)


def test_fast_p_at_k_is_the_mean_over_problems() -> None:
    # of two samples one is faster than 1: 0.5 at k = 1, 1 at k = 2; the other problem has none
    assert fast_p_at_k([[2.0, 0.5], [None, 1.0]], 1.0, 1) == pytest.approx(0.25)
    assert fast_p_at_k([[2.0, 0.5], [None, 1.0]], 1.0, 2) == pytest.approx(0.5)
    assert fast_p_at_k([[2.0, 0.5], [None, 1.0]], 0.0, 1) == pytest.approx(0.75)


@given(st.lists(st.lists(perhaps, min_size=4, max_size=4), min_size=1, max_size=6), ratios)
def test_with_all_samples_fast_p_at_k_is_fast_p_of_the_best(speedups: list[list[float | None]], p: float) -> None:
    best = [max((x for x in own if x is not None), default=None) for own in speedups]
    assert fast_p_at_k(speedups, p, 4) == pytest.approx(fast_p([x is not None for x in best], best, p))
    assert fast_p_at_k(speedups, p, 1) <= fast_p_at_k(speedups, p, 2) + 1e-12


def test_fast_p_at_k_refuses_too_few_samples_and_no_problem() -> None:
    with pytest.raises(ValueError, match="k must be from 1 to n = 1"):
        fast_p_at_k([[1.0, 1.0], [1.0]], 1.0, 2)
    with pytest.raises(ValueError, match="no problem"):
        fast_p_at_k([], 1.0, 1)


def test_the_geometric_mean_of_nothing_is_nothing() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert geometric_mean([5.0, 0.0]) == 0.0


def test_the_mean_speedup_over_correct_problems_and_over_all() -> None:
    assert geometric_mean_speedup(CORRECT, SPEEDUP) == pytest.approx(1.0)
    # 2, 1, max(1, 0.5), 1: the fourth root of 2
    assert geometric_mean_speedup_of_all(CORRECT, SPEEDUP) == pytest.approx(2**0.25)
    assert geometric_mean_speedup([False, False], [None, None]) is None
    assert geometric_mean_speedup_of_all([False, False], [None, None]) == 1.0


@given(rows)
def test_the_mean_over_all_is_at_least_one_and_at_most_the_best(speedups: list[float | None]) -> None:
    value = geometric_mean_speedup_of_all([x is not None for x in speedups], speedups)
    assert 1.0 - 1e-12 <= value <= max(1.0, *(x or 0.0 for x in speedups), 1.0) * (1 + 1e-9)


@given(st.lists(ratios, min_size=1, max_size=8), ratios)
def test_a_faster_clock_everywhere_scales_the_mean(speedups: list[float], factor: float) -> None:
    correct = [True] * len(speedups)
    scaled = geometric_mean_speedup(correct, [x * factor for x in speedups])
    assert scaled == pytest.approx((geometric_mean_speedup(correct, speedups) or 0.0) * factor)


def test_memory_counts_correct_problems_with_a_measured_ratio() -> None:
    correct, ratio = [True, True, True, True, False], [2.0, 0.5, 1.0, None, 8.0]
    assert memory_efficiency(correct, ratio) == pytest.approx(1.0)
    assert share_that_raises_memory(correct, ratio) == pytest.approx(1 / 3)
    assert memory_efficiency([True], [None]) is None
    assert share_that_raises_memory([False], [0.5]) is None


# -- intervals --------------------------------------------------------------------------------------------------------


@given(st.lists(perhaps, min_size=2, max_size=20), st.booleans())
def test_an_interval_lies_within_the_values(values: list[float | None], geometric: bool) -> None:
    known = [value for value in values if value is not None]
    interval = bootstrap_interval(values, geometric=geometric, resamples=200)
    if len(known) < 2:
        assert interval is None
        return
    assert interval is not None
    assert min(known) * (1 - 1e-9) <= interval[0] <= interval[1] <= max(known) * (1 + 1e-9)
    assert interval == bootstrap_interval(values, geometric=geometric, resamples=200)


def test_an_interval_of_a_share_is_that_of_the_binomial() -> None:
    low, high = bootstrap_interval([1.0] * 50 + [0.0] * 50) or (0.0, 0.0)
    error = 1.96 * math.sqrt(0.25 / 100)
    assert low == pytest.approx(0.5 - error, abs=0.015)
    assert high == pytest.approx(0.5 + error, abs=0.015)


def test_an_interval_covers_as_often_as_it_says() -> None:
    import numpy as np

    generator = np.random.default_rng(7)
    covered = 0
    for trial in range(200):
        interval = bootstrap_interval(list(generator.normal(1.0, 1.0, size=40)), resamples=400, seed=trial)
        assert interval is not None
        covered += interval[0] <= 1.0 <= interval[1]
    assert covered >= 180  # 190 expected; the percentile interval of 40 values is a little narrow


# -- from verdicts to numbers -----------------------------------------------------------------------------------------


def test_a_credited_verdict_is_a_correct_sample() -> None:
    sample = read_sample(make_verdict(speedup=2.0, memory=1.5))
    assert sample == Sample(standard=True, speedup=2.0, memory_ratio=1.5)
    assert sample.correct


@pytest.mark.parametrize(
    ("status", "standard"),
    [
        (Status.WRONG_HIDDEN, True),
        (Status.NO_CUSTOM_KERNEL, True),
        (Status.WRONG_VALUE, False),
        (Status.RUNTIME_ERROR, False),
        (Status.COMPILE_ERROR, False),
        (Status.FORMAT_ERROR, False),
    ],
)
def test_what_failed_after_the_standard_trials_was_right_on_them(status: Status, standard: bool) -> None:
    assert read_sample(make_verdict(status)) == Sample(standard=standard, speedup=None, memory_ratio=None)


def test_a_speedup_without_credit_is_none() -> None:
    assert read_sample(make_verdict(Status.NO_CUSTOM_KERNEL, speedup=9.0)).speedup is None


def test_a_conversation_is_its_fastest_credited_turn() -> None:
    turns = [Sample(True, None), Sample(True, 1.5, 0.5), Sample(True, 1.2, 2.0), Sample(False, None)]
    assert merge_turns(turns) == Sample(True, 1.5, 0.5)
    assert merge_turns([Sample(False, None)]) == Sample(False, None)


def test_a_summary_is_the_functions_over_the_best_of_n() -> None:
    problems = [solved(2.0, None, 3.0), solved(0.5, 0.4, None, memory=0.5), solved(None, None, None, standard=False)]
    summary = summarise(problems)
    correct, best = [True, True, False], [3.0, 0.5, None]
    assert (summary.problems, summary.samples) == (3, 9)
    assert summary.correct.value == pytest.approx(2 / 3)
    assert {p: fast.value for p, fast in summary.fast.items()} == {
        f"{p:g}": pytest.approx(fast_p(correct, best, p)) for p in (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
    }
    assert {k: number.value for k, number in summary.pass_at.items()} == {
        "1": pytest.approx((2 / 3 + 2 / 3) / 3),
        "3": pytest.approx(2 / 3),
    }
    assert summary.fast_at["1"].value == pytest.approx(2 / 9)
    assert summary.speedup is not None
    assert summary.speedup.value == pytest.approx(math.sqrt(1.5))
    assert summary.speedup_of_all.value == pytest.approx(3 ** (1 / 3))
    assert summary.memory is not None
    assert summary.memory.value == pytest.approx(math.sqrt(0.5))
    assert summary.raises_memory is not None
    assert summary.raises_memory.value == pytest.approx(0.5)


def test_a_summary_of_one_problem_has_no_intervals_and_nothing_to_claim_of_what_is_not_there() -> None:
    summary = summarise([solved(None, standard=True)])
    assert summary.correct.value == 0.0
    assert summary.correct.low is None
    assert summary.standard.value == 1.0
    assert (summary.speedup, summary.memory, summary.raises_memory) == (None, None, None)
    assert summary.speedup_of_all.value == 1.0


@given(st.lists(st.lists(perhaps, min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_summary_can_be_made_of_anything_and_read_back(speedups: list[list[float | None]]) -> None:
    summary = summarise([solved(*own) for own in speedups])
    assert type(summary).model_validate_json(summary.model_dump_json()) == summary
    numbers = [summary.correct, *summary.fast.values(), *summary.pass_at.values()]
    assert all(0.0 <= (x.low or 0.0) <= (x.high or 1.0) <= 1.0 and 0.0 <= x.value <= 1.0 for x in numbers)


def test_ks_beyond_the_least_number_of_samples_are_not_estimated() -> None:
    summary = summarise([solved(1.0, 2.0), solved(1.0, 2.0, 3.0)])
    assert set(summary.pass_at) == {"1", "2"}


def test_nothing_to_summarise_is_refused() -> None:
    with pytest.raises(ValueError, match="no judged problem"):
        summarise([])


def test_groups_have_summaries_of_their_own() -> None:
    problems = [solved(2.0, level=2), solved(None, level=1), solved(4.0, level=2)]
    groups = summarise_groups(problems, lambda one: one.level)
    assert list(groups) == [1, 2]
    assert groups[2].problems == 2
    assert groups[1].correct.value == 0.0
    assert summarise_groups(problems, lambda one: one.category) == {}


# -- the decomposition ------------------------------------------------------------------------------------------------


def test_the_decomposition_worked_by_hand() -> None:
    problems = [
        Corrected(True, standard=4.0, hidden=4.0, tf32=1.0),  # a matrix product: TF32 takes three quarters
        Corrected(True, standard=8.0, hidden=None, tf32=None),  # a shortcut that the hidden checks find
        Corrected(True, standard=2.0, hidden=2.0, tf32=2.0),
        Corrected(False, standard=None, hidden=None, tf32=None),
    ]
    found = decompose(problems)
    assert [found.steps[name].correct.value for name in ("standard", "hidden", "tf32")] == [0.75, 0.5, 0.5]
    assert [found.steps[name].faster.value for name in ("standard", "hidden", "tf32")] == [0.75, 0.5, 0.25]
    means = [found.steps[name].speedup for name in ("standard", "hidden", "tf32")]
    assert [mean.value if mean else None for mean in means] == [
        pytest.approx(4.0), pytest.approx(math.sqrt(8)), pytest.approx(math.sqrt(2)),
    ]  # fmt: skip
    assert (found.reach_hidden, found.reach_tf32) == (0.25, 0.25)


def test_a_speedup_that_falls_by_exactly_half_is_reached() -> None:
    assert decompose([Corrected(True, 2.0, 2.0, 1.0)]).reach_tf32 == 1.0
    assert decompose([Corrected(True, 2.0, 2.0, 1.01)]).reach_tf32 == 0.0


def test_what_was_right_on_the_standard_trials_and_not_timed_is_in_the_share_and_not_in_the_mean() -> None:
    found = decompose([Corrected(True, None, None, None), Corrected(True, 4.0, 4.0, 4.0)])
    assert found.steps["standard"].correct.value == 1.0
    assert found.steps["standard"].speedup is not None
    assert found.steps["standard"].speedup.value == pytest.approx(4.0)
    assert found.reach_hidden == 0.5


def test_nothing_to_decompose_is_refused() -> None:
    with pytest.raises(ValueError, match="no judged problem"):
        decompose([])
