"""What a latency is made of, and what no forward can spare itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kbenv.sandbox.judge.clock import GateError
from kbenv.sandbox.judge.timing import _OPEN, Series, Timer, _drift, _slower_in_single_calls, merge

NULL_MS = 0.1


def apart(forward_ms: dict[str, float], copy_ms: dict[str, float], jitter: float = 0.001) -> Series:
    """Turns of one call, as long as they are said to be, the null runner's among them."""
    series = Series(1, gated=True)
    for arm in ("reference", "submission", "null"):
        for turn in range(8):
            noise = jitter * (turn % 4 - 1.5)
            series.turns[arm].append(NULL_MS + forward_ms.get(arm, 0.0) + noise)
            series.copies[arm].append(copy_ms.get(arm, 0.2) + noise)
    return series


def test_a_turn_of_many_calls_is_a_mean_with_the_null_turn_subtracted():
    series = Series(4, gated=True, turns={"reference": [9.0], "submission": [5.0], "null": [1.0]})
    assert series.latencies("reference") == [2.0]
    assert series.latencies("submission") == [1.0]


def test_work_put_off_until_the_copy_is_charged_and_a_copy_spared_is_no_gain():
    series = apart({"reference": 1.0, "submission": 0.25}, {"submission": 0.95})
    assert series.latencies("submission") == pytest.approx([1.0] * 8, abs=0.01)
    spared = apart({"reference": 1.0, "submission": 1.0}, {"submission": 0.0})
    assert spared.latencies("submission") == pytest.approx([1.0] * 8, abs=0.01)


@pytest.mark.parametrize(("row", "single", "slower"), [(1.0, 1.01, False), (1.0, 1.1, True), (0.01, 1.0, True)])
def test_calls_alone_count_where_they_are_slower_than_in_a_row(row, single, slower):
    series = apart({"reference": 1.0, "submission": single}, {})
    assert _slower_in_single_calls([series], [NULL_MS], row, 1.0, 0.0) is slower


def test_what_is_usual_for_the_reference_is_not_held_against_the_submission():
    series = apart({"reference": 1.2, "submission": 1.2}, {})
    assert not _slower_in_single_calls([series], [NULL_MS], 1.0, 1.0, 0.0)


def test_a_submissions_own_jitter_hides_nothing():
    series = apart({"reference": 1.0, "submission": 1.0}, {})
    series.turns["submission"][::2] = [turn + 50.0 for turn in series.turns["submission"][::2]]
    assert _slower_in_single_calls([series], [NULL_MS], 0.1, 1.0, 0.0)


@pytest.mark.parametrize(("single", "slower"), [(1.2, False), (1.8, True)])
def test_runners_of_the_same_code_may_differ_in_calls_alone(single, slower):
    pairs = [apart({"reference": 1.0, "submission": one}, {}) for one in (1.0, single, 1.0, single)]
    assert _slower_in_single_calls(pairs, [NULL_MS] * 4, 1.0, 1.0, 0.1) is slower


def test_nor_does_a_disturbed_device():
    series = apart({"reference": 1.0, "submission": 1.0}, {}, jitter=1.0)
    assert _slower_in_single_calls([series], [NULL_MS], 0.1, 1.0, 0.0)


BUSY = ((0.0, 0.1, 0.5), (0.3, 0.0, 0.4), (0.9, 0.2, 0.1), (0.0, 0.6, 0.8))
"""What else a machine does in three turns of four pairs of runners."""


@pytest.mark.parametrize(("single", "slower"), [(1.0, False), (1.25, True)])
def test_on_a_busy_machine_turns_of_all_pairs_are_one_sample(single, slower):
    pairs = []
    for reference, submission in zip(BUSY, reversed(BUSY), strict=True):
        turns = {
            "reference": [NULL_MS + 1.0 + later for later in reference],
            "submission": [NULL_MS + single + later for later in submission],
            "null": [NULL_MS] * 3,
        }
        pairs.append(Series(1, gated=False, turns=turns, copies={arm: [0.2] * 3 for arm in turns}))
    assert _slower_in_single_calls([merge(pairs)], [NULL_MS], 1.0, 1.0, 0.0) is slower


@pytest.mark.parametrize(
    ("device", "found", "subtracted"), [("cuda", 1.03, 1.03), ("cuda", 3.0, 1.05), ("cpu", 3.0, 3.0)]
)
def test_copies_slowed_down_beside_the_submission_are_not_subtracted(device, found, subtracted):
    timer = SimpleNamespace(job=SimpleNamespace(device=device, null_alone={(4, True): 1.0}), slow_nulls=[])
    series = Series(4, gated=True, turns={"reference": [9.0], "submission": [5.0], "null": [found]})
    assert Timer.null_ms(timer, series) == pytest.approx(subtracted)
    assert timer.slow_nulls == ([3.0] if subtracted == 1.05 else [])
    assert Timer.null_ms(timer, Series(4, gated=False, turns=series.turns)) == found


@pytest.mark.parametrize(("found", "subtracted"), [(0.29, 0.29), (0.5, 0.3)])
def test_a_null_turn_of_one_call_may_differ_as_runners_do(found, subtracted):
    timer = SimpleNamespace(job=SimpleNamespace(device="cuda", null_alone={(1, True): 0.2}), slow_nulls=[])
    series = Series(1, gated=True, turns={"reference": [9.0], "submission": [5.0], "null": [found]})
    assert Timer.null_ms(timer, series) == pytest.approx(subtracted)
    assert len(timer.slow_nulls) == (found != subtracted)


@pytest.mark.parametrize(
    ("pairs", "drift"),
    [
        ([[1.0, 1.02, 5.0], [1.0, 1.04, 1.1]], 1.04 / 1.02),
        ([[1.0, 1.0, 1.0], [1.3, 1.3, 1.3], [1.1, 1.1, 1.1]], 1.3),
        ([[0.001], [0.004]], 1.0),
        ([[1.0]], 1.0),
    ],
    ids=["one slow turn", "a throttled clock", "too short to tell", "one pair"],
)
def test_a_device_that_changes_from_pair_to_pair_is_noticed(pairs, drift):
    assert _drift(pairs) == pytest.approx(drift)


class Rehearsed(Timer):
    """Its turns take as long as they are said to."""

    def warm_up(self, arms, events):
        return Series(self.calls, self.gated)

    def round(self, series, arms, *, events=None):
        for arm in arms:
            series.turns[arm].append((0.1 if arm == "null" else 1.1) * series.calls)
            series.copies[arm].append(0.2)


def test_what_the_reference_takes_alone_is_known_of_calls_alone_too():
    rule = {"statistic": "median", "timed_calls": 10, "runner_pairs": 1, "turns_per_pair": 5, "single_call_turns": 3}
    plan = SimpleNamespace(calls=4, slots=8, exclusive=False)
    job = SimpleNamespace(protocol={"timing": rule}, plan=plan, device="cuda", forward_ms=1.0, null_alone={})
    in_a_row, single = Rehearsed(job).alone()
    assert in_a_row == pytest.approx([1.0] * 5)
    assert single == pytest.approx([1.0] * 3)
    assert job.null_alone == {(4, True): pytest.approx(0.4), (1, True): pytest.approx(0.1)}


@pytest.mark.parametrize(("refusals", "gated"), [(0, True), (1, True), (2, False), (9, False)])
def test_calls_that_keep_waiting_for_the_device_are_timed_open(refusals, gated):
    rule = {"statistic": "median", "timed_calls": 10, "runner_pairs": 1, "turns_per_pair": 5, "single_call_turns": 3}
    plan = SimpleNamespace(calls=4, slots=8, exclusive=False)
    job = SimpleNamespace(protocol={"timing": rule}, plan=plan, device="cuda", forward_ms=1.0, null_alone={})

    class Waiting(Rehearsed):
        left = refusals

        def round(self, series, arms, *, events=None):
            if series.gated and self.left > 0 and len(series.turns["null"]) == 2:
                self.left -= 1
                raise GateError
            super().round(series, arms)

    timer = Waiting(job)
    in_a_row, single = timer.alone()
    assert (len(in_a_row), len(single)) == (5, 3)
    assert timer.gated is gated
    assert timer.clock_notes == ([] if gated else [_OPEN])


@pytest.mark.parametrize(
    ("ratios", "enough", "pairs"),
    [
        ((1.0, 1.001), 0.02, 2),
        ((1.0, 1.02, 1.01), 0.02, 4),
        ((1.0, 1.02, 1.01), 0.06, 3),
        ((1.0, 1.0), None, 4),
    ],
    ids=["two agree", "four that do not", "three do well enough", "the protocol wants all"],
)
def test_no_pair_of_runners_is_added_where_those_before_agree(ratios, enough, pairs):
    rule = {
        "statistic": "median", "ratio": "median-of-pairs", "timed_calls": 10, "runner_pairs": 4, "turns_per_pair": 5,
        "slow_pair_s": 5.0, "slow_runner_pairs": 3, "bootstrap_resamples": 200, "confidence": 0.95, "pair_spread": 0.02,
        "enough": enough, "single_call_turns": 8,
    }  # fmt: skip
    plan = SimpleNamespace(calls=4, slots=8, exclusive=False)
    made = []
    job = SimpleNamespace(
        protocol={"timing": rule}, plan=plan, device="cuda", forward_ms=1.0, null_alone={},
        recreate_pair=lambda: made.append("pair"), await_ended=lambda: None,
    )  # fmt: skip

    class Differing(Rehearsed):
        def round(self, series, arms, *, events=None):
            super().round(series, arms)
            pair = min(len(made), len(ratios) - 1)
            series.turns["submission"][-1] = 0.4 + 4 / ratios[pair]

    timed, singles, opened = Differing(job).pairs({})
    assert (len(timed), len(singles), len(opened), len(made)) == (pairs, pairs, pairs, pairs - 1)
