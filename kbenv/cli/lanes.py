"""Work on several things at once, from a command that Ctrl-C ends at any moment."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_lanes(items: Sequence[T], work: Callable[[T], R], lanes: int) -> Iterator[tuple[T, R]]:
    """`work(item)` for every item, `lanes` of them at a time; each with its item as soon as it is done.

    The lanes are threads that end with the process: whoever is interrupted, or stops iterating, waits for none of
    them. None begins another item then.

    Raises:
        BaseException: whatever `work` raises; no further item is begun.
    """
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[T, R] | BaseException] = queue.SimpleQueue()
    stopped = threading.Event()
    for item in items:
        waiting.put(item)

    def lane() -> None:
        while not stopped.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, work(item)))
            except BaseException as error:  # it is raised where the results are read
                done.put(error)
                return

    threads = [threading.Thread(target=lane, daemon=True) for _ in range(min(lanes, len(items)))]
    for thread in threads:
        thread.start()
    try:
        for _ in items:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stopped.set()
