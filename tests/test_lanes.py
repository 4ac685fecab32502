"""Work in lanes: all of it once, several at a time, and an end at the first error."""

from __future__ import annotations

import threading
import time

import pytest

from kbenv.cli.lanes import in_lanes


def test_every_item_is_worked_on_once_whatever_the_lanes() -> None:
    for lanes in (1, 3, 50):
        assert sorted(in_lanes(range(20), lambda number: number * 2, lanes)) == [(n, 2 * n) for n in range(20)]
    assert list(in_lanes([], lambda number: number, 3)) == []


def test_one_lane_keeps_the_order_and_several_work_at_the_same_time() -> None:
    assert [item for item, _ in in_lanes(range(10), lambda number: number, 1)] == list(range(10))
    together = threading.Barrier(4, timeout=10)
    assert len(list(in_lanes(range(4), lambda _: together.wait(), 4))) == 4


def test_an_error_is_raised_and_nothing_more_is_begun() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 2:
            raise KeyboardInterrupt
        time.sleep(0.01)
        return number

    with pytest.raises(KeyboardInterrupt):
        list(in_lanes(range(100), work, 2))
    time.sleep(0.05)
    assert len(begun) < 8


def test_who_stops_reading_stops_the_work() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.005)
        return number

    for _ in in_lanes(range(1000), work, 2):
        break
    time.sleep(0.05)
    assert len(begun) < 10
