"""Asking several things at once, read in the order in which they were asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_order(tasks: Sequence[Callable[[], Result]], at_once: int) -> Iterator[Future[Result]]:
    """Runs `tasks` in at most `at_once` threads; yields their futures in order, each when it is done.

    The threads are daemons: an interrupted program ends without waiting for a service's answer. Once a task has raised,
    or the consumer has stopped reading, those that have begun finish, and the others are cancelled.
    """
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
        for future in futures:
            future.exception()  # waits
            yield future
    finally:
        stop()
