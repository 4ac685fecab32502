"""Tasks at once, read in their order."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from kbenv.agents.parallel import in_order


def test_results_come_in_order_and_no_more_run_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def task(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02 * (5 - number % 5))
        with lock:
            running -= 1
        return number

    assert list(in_order([partial(task, number) for number in range(12)], 3)) == list(range(12))
    assert most == 3


def test_one_at_a_time_runs_each_when_it_is_asked_for_in_the_callers_thread() -> None:
    ran: list[str] = []
    results = in_order([lambda: ran.append(threading.current_thread().name)] * 3, 1)
    assert ran == []
    next(results)
    assert ran == [threading.current_thread().name]


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_what_a_task_raises_comes_in_its_place_and_no_other_begins(at_once: int) -> None:
    begun: list[int] = []

    def task(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise KeyboardInterrupt
        time.sleep(0.01 if number < 3 else 0.05)
        return number

    results = in_order([partial(task, number) for number in range(50)], at_once)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(results)
    time.sleep(0.1)
    assert len(begun) <= 4 + at_once


def test_a_reader_that_stops_lets_no_other_begin() -> None:
    begun: list[int] = []

    def task(number: int) -> int:
        begun.append(number)
        time.sleep(0.02)
        return number

    results = in_order([partial(task, number) for number in range(50)], 2)
    next(results)
    results.close()
    time.sleep(0.1)
    assert len(begun) <= 5
