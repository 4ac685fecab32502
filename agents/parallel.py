"""Asking several things at once, read in the order in which they were asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_order(tasks: Sequence[Callable[[], Result]], at_once: int) -> Iterator[Result]:
    """The results of `tasks`, in order; at most `at_once` run at a time; what one raises is raised in its place.

    With `at_once` 1 each task runs when its result is asked for, in the caller's thread. Else in daemon threads: an
    interrupted program ends without waiting for a service's answer. Once a task has raised, or the consumer has stopped
    reading, those that have begun finish, and no other begins.
    """
    if at_once == 1:
        yield from (task() for task in tasks)
        return
    futures: list[Future[Result]] = [Future() for _ in tasks]
    queue = iter(list(zip(tasks, futures, strict=True)))
    lock = threading.Lock()

    def stop() -> None:
        with lock:
            for _, future in queue:
                future.cancel()

    def work() -> None:
        while True:
            with lock:
                task, future = next(queue, (None, None))
            if task is None or future is None:
                return
            try:
                result = task()
            except BaseException as error:  # handed to whoever reads the future, KeyboardInterrupt included
                stop()
                future.set_exception(error)
            else:
                future.set_result(result)

    for _ in range(min(at_once, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    try:
        yield from (future.result() for future in futures)
    finally:
        stop()
