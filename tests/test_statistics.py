"""The interval of a speedup covers the truth about as often as it says, few and correlated as the samples are."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from kbenv.protocol import get_protocol
from kbenv.sandbox.judge.statistics import (
    MEDIAN_OF_PAIRS,
    bootstrap_ratio,
    centre,
    is_tight,
    lower_quartile,
    robust_error,
)

TRUE_RATIO = 1.5


def draw_pairs(
    generator: random.Random, pairs: int, turns: int, between: float, within: float
) -> list[list[tuple[float, float]]]:
    """Turns of a reference TRUE_RATIO times as slow; every pair of runners has a steady error of its own."""
    drawn = []
    for _ in range(pairs):
        reference, submission = (math.exp(generator.gauss(0, between)) for _ in range(2))
        drawn.append(
            [
                (
                    TRUE_RATIO * reference * math.exp(generator.gauss(0, within)),
                    submission * math.exp(generator.gauss(0, within)),
                )
                for _ in range(turns)
            ]
        )
    return drawn


@pytest.mark.parametrize(("pairs", "between"), [(4, 0.015), (4, 0.0), (3, 0.015), (8, 0.015), (12, 0.015)])
@pytest.mark.parametrize("statistic", ["mean", "median", MEDIAN_OF_PAIRS])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(pairs, between, statistic):
    generator = random.Random(pairs)
    trials, covered = 300, 0
    for trial in range(trials):
        ratio = bootstrap_ratio(draw_pairs(generator, pairs, 5, between, 0.01), statistic, 200, 0.95, trial)
        covered += ratio.low <= TRUE_RATIO <= ratio.high
    assert 0.90 <= covered / trials <= 1.0, covered / trials


@pytest.mark.parametrize(("between", "within"), [(0.003, 0.003), (0.005, 0.003), (0.01, 0.003), (0.01, 0.01)])
def test_the_interval_covers_the_truth_as_often_where_tight_ones_end_the_timing(between, within):
    """A look after each pair from the second on: those that agree by chance end it, too."""
    timing = get_protocol("hardened").timing
    assert timing.enough is not None
    generator, trials, covered, ended = random.Random(11), 300, 0, 0
    for trial in range(trials):
        pairs = draw_pairs(generator, timing.runner_pairs, timing.turns_per_pair, between, within)
        for looked in range(2, timing.runner_pairs + 1):
            ratio = bootstrap_ratio(pairs[:looked], MEDIAN_OF_PAIRS, 200, timing.confidence, trial)
            if is_tight(ratio, timing.enough):
                ended += looked < timing.runner_pairs
                break
        covered += ratio.low <= TRUE_RATIO <= ratio.high
    assert ended > (trials / 100 if within > 0.003 or between > 0.005 else trials / 4)
    assert covered / trials >= 0.93, covered / trials


def test_steady_differences_between_pairs_widen_the_interval():
    def width(between: float) -> float:
        generator = random.Random(7)
        widths = []
        for trial in range(30):
            ratio = bootstrap_ratio(draw_pairs(generator, 4, 5, between, 0.01), "mean", 200, 0.95, trial)
            widths.append(ratio.high / ratio.low)
        return statistics.fmean(widths) - 1

    assert width(0.03) > 3 * width(0.0)


def test_more_pairs_narrow_the_interval():
    def width(pairs: int) -> float:
        generator = random.Random(3)
        drawn = [bootstrap_ratio(draw_pairs(generator, pairs, 5, 0.02, 0.01), "mean", 200, 0.95, n) for n in range(20)]
        return statistics.fmean(ratio.high / ratio.low for ratio in drawn) - 1

    assert width(4) > 1.5 * width(16)


def test_the_interval_contains_its_value_and_the_same_seed_gives_the_same():
    pairs = draw_pairs(random.Random(1), 4, 5, 0.02, 0.02)
    ratio = bootstrap_ratio(pairs, "mean", 500, 0.95, 9)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio == bootstrap_ratio(pairs, "mean", 500, 0.95, 9)
    reference, submission = (statistics.fmean(t[i] for pair in pairs for t in pair) for i in (0, 1))
    assert ratio.value == pytest.approx(reference / submission)


def test_turns_without_spread_give_an_interval_without_width():
    ratio = bootstrap_ratio([[(3.0, 2.0)] * 5] * 4, "median", 100, 0.95, 1)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_single_pair_has_an_interval_over_its_turns():
    pairs = draw_pairs(random.Random(2), 1, 6, 0.0, 0.05)
    ratio = bootstrap_ratio(pairs, "mean", 500, 0.95, 1)
    assert ratio.low < ratio.value < ratio.high
    lone = bootstrap_ratio([[(3.0, 2.0)]], "mean", 10, 0.95, 1)
    assert lone.low == pytest.approx(1.5)


@pytest.mark.parametrize("between", [0.0, 0.007, 0.014])
def test_a_single_pair_is_widened_by_what_pairs_differ_by(between):
    """`between` of either runner: ratios differ by sqrt(2) times as much, up to the 0.02 that is allowed for."""
    generator = random.Random(11)
    trials, covered = 300, 0
    for trial in range(trials):
        pairs = draw_pairs(generator, 1, 6, between, 0.01)
        ratio = bootstrap_ratio(pairs, MEDIAN_OF_PAIRS, 200, 0.95, trial, 0.02)
        covered += ratio.low <= TRUE_RATIO <= ratio.high
        assert math.log(ratio.high / ratio.low) >= 2 * 1.959 * 0.02
    assert covered / trials >= 0.93, covered / trials


def test_the_interval_of_a_single_pair_shows_a_drift_that_its_turns_share():
    def width(drift: float) -> float:
        pair = [(1.0 + drift * (turn // 2), 1.0) for turn in range(6)]
        ratio = bootstrap_ratio([pair], MEDIAN_OF_PAIRS, 500, 0.95, 3)
        return math.log(ratio.high / ratio.low)

    assert width(0.0) == pytest.approx(0.0)
    assert width(0.1) > 0.4  # from 1.0 over 1.1 to 1.2


def test_several_pairs_show_themselves_what_they_differ_by():
    pairs = draw_pairs(random.Random(2), 2, 6, 0.0, 0.05)
    assert bootstrap_ratio(pairs, "mean", 200, 0.95, 1, 0.02) == bootstrap_ratio(pairs, "mean", 200, 0.95, 1)


def test_the_median_ignores_one_slow_turn_and_the_mean_does_not():
    turns = [1.0, 1.0, 1.0, 1.0, 9.0]
    assert centre(turns, "median") == 1.0
    assert centre(turns, "mean") == pytest.approx(2.6)


def test_the_robust_error_is_that_of_the_median_and_no_stray_value_moves_it():
    generator = random.Random(1)
    samples = [[generator.gauss(5.0, 2.0) for _ in range(100)] for _ in range(300)]
    true = statistics.stdev(statistics.median(sample) for sample in samples)
    assert statistics.fmean(map(robust_error, samples)) == pytest.approx(true, rel=0.15)
    assert robust_error([*samples[0], 1e9]) == pytest.approx(robust_error(samples[0]), rel=0.1)
    assert robust_error([1.0, 4.0, 2.0]) == 3.0
    assert robust_error([1.0]) == 0.0


def test_the_lower_quartile_is_one_of_the_values():
    assert lower_quartile([4.0, 1.0, 3.0, 2.0]) == 2.0
    assert lower_quartile([7.0]) == 7.0


def test_the_median_of_pairs_is_that_of_each_turns_own_ratio():
    pairs = [[(3.0, 1.0), (4.0, 2.0)], [(5.0, 1.0), (8.0, 2.0), (2.0, 4.0)]]
    assert bootstrap_ratio(pairs, MEDIAN_OF_PAIRS, 50, 0.95, 1).value == 3.0
    assert bootstrap_ratio(pairs, "median", 50, 0.95, 1).value == 2.0


def test_a_drift_that_both_sides_of_a_turn_share_cancels():
    drifting = [[(1.5 * drift, drift) for drift in (1.0, 1.3, 2.0, 0.7, 5.0)] for _ in range(4)]
    ratio = bootstrap_ratio(drifting, MEDIAN_OF_PAIRS, 200, 0.95, 1)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize("spoilt", [0, 1])
def test_turns_that_were_disturbed_do_not_move_the_median_of_pairs(spoilt):
    pairs = draw_pairs(random.Random(4), 4, 5, 0.0, 0.01)
    before = bootstrap_ratio(pairs, MEDIAN_OF_PAIRS, 200, 0.95, 1)
    for pair in pairs:
        disturbed = list(pair[0])
        disturbed[spoilt] *= 50
        pair[0] = (disturbed[0], disturbed[1])
    after = bootstrap_ratio(pairs, MEDIAN_OF_PAIRS, 200, 0.95, 1)
    assert after.value == pytest.approx(before.value, rel=0.01)
    assert abs(bootstrap_ratio(pairs, "mean", 200, 0.95, 1).value / before.value - 1) > 0.5


def test_the_median_of_pairs_is_the_inverse_where_the_sides_are_swapped():
    pairs = draw_pairs(random.Random(5), 4, 5, 0.02, 0.02)
    swapped = [[(submission, reference) for reference, submission in pair] for pair in pairs]
    value = bootstrap_ratio(pairs, MEDIAN_OF_PAIRS, 20, 0.95, 1).value
    assert bootstrap_ratio(swapped, MEDIAN_OF_PAIRS, 20, 0.95, 1).value == pytest.approx(1 / value, rel=1e-3)
