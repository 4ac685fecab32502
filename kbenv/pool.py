"""Many jobs on many devices: one evaluator, hence one judge, for each; a queue before them all.

Build workers beside them take what has something to compile first, in order and ahead of the judges; a judge takes the
first job that has nothing left to build, and so holds its device for no compiler. They decide nothing: where they fail,
or none is left, a job builds for itself.

The same problem and source are judged once, however often they are asked for. A fault of the machine is tried again by
the evaluator itself (once, with a fresh judge), and then on another device where there is one; what still fails has no
verdict. A device on which one job after another fails is given up, so that it does not eat the queue.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from kbenv.baseline import machine_key
from kbenv.build_worker import BuildWorker, default_workers, may_build
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import MAX_SOURCE_BYTES, Evaluator, may_pass
from kbenv.problems.problem import Problem
from kbenv.sandbox.gpu import resolve_devices
from kbenv.sandbox.job import Result
from kbenv.store import KeptVerdicts
from kbenv.verdict import Hardware, Verdict

FAULTS_IN_A_ROW = 3
"""After so many jobs in a row without a verdict a device is given up, if there is another."""
REMEMBERED = 4096
"""Most finished verdicts that answer for equal jobs; the least recently asked for go first."""
AHEAD_OF_EACH = 8
"""So many jobs that are built may wait for each device before nothing more is built ahead."""
_JOIN_S = 15.0

PoolJob = tuple["Problem | str", "str | None"]
"""A problem (or its name) and a source; None for an answer that holds no code."""
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Outcome:
    """What became of the `index`-th job: its verdict, or why there is none (`fault`)."""

    index: int
    verdict: Verdict | None
    fault: str | None = None


@dataclass(eq=False)
class _Task:
    problem: Problem
    source: str
    key: _Key
    build: Literal["due", "begun", "over"] = "over"
    ahead_seconds: float | None = None
    future: Future[Verdict] = field(default_factory=Future)
    failed_on: set[Evaluator] = field(default_factory=set)


class EvaluatorPool:
    """Evaluators at work side by side; a context manager. It does what an environment asks of an `Evaluator`.

    Leaving it waits for nothing: what is still judged then is given up, and no process is left.

    Args:
        evaluators: of one protocol, each on a device of its own; they are closed with the pool.
        keep: a folder in which verdicts are kept, and found again by a later pool of equal rules on an equal machine.
        build_workers: how many compile beside the judges; None for `default_workers` where they can be had.
        on_build: called with a build worker's name and what it does, from its thread: "building ID", "waiting", or
            "failed: REASON".

    Raises:
        UsageError: no evaluator, or their rules differ, or the build workers that are asked for cannot be had.
    """

    def __init__(
        self, evaluators: Sequence[Evaluator], *, keep: Path | None = None, build_workers: int | None = None,
        on_build: Callable[[str, str], None] | None = None,
    ) -> None:  # fmt: skip
        if not evaluators:
            raise UsageError("a pool needs at least one evaluator; found none")
        first = evaluators[0]
        if any(other.protocol != first.protocol or other.backend != first.backend for other in evaluators):
            raise UsageError("the evaluators of a pool must have one protocol and one backend")
        self.protocol = first.protocol
        self.backend = first.backend
        self.device = first.device
        self.sandbox_note = first.sandbox_note
        self._kept = KeptVerdicts(keep) if keep is not None else None
        self._evaluators = list(evaluators)
        self._idle = threading.Condition()
        self._waiting: deque[_Task] = deque()
        self._futures: OrderedDict[_Key, Future[Verdict]] = OrderedDict()
        self._working: list[Evaluator] = list(evaluators)
        self._device_name: str | None = None
        self._machines: dict[Evaluator, tuple[Hardware, dict[str, str | None]]] = {}
        self._closed = False
        self._workers = _make_workers(first, len(evaluators), build_workers)
        self._building: list[BuildWorker] = list(self._workers)
        self._on_build = on_build or (lambda worker, phase: None)
        self._stand_in: Future[Result | None] | None = None
        """What build workers must know of the devices, which are alike."""
        self._threads = [
            threading.Thread(target=self._work, args=(evaluator,), name=f"kbenv {evaluator.device}", daemon=True)
            for evaluator in evaluators
        ] + [
            threading.Thread(target=self._build, args=(worker, name), name=f"kbenv {name}", daemon=True)
            for worker, name in zip(self._workers, self.build_workers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def admit(self, problem: Problem | str) -> Problem:
        """As `Evaluator.admit`."""
        return self._evaluators[0].admit(problem)

    @property
    def devices(self) -> tuple[str, ...]:
        """Those still at work."""
        return tuple(evaluator.device for evaluator in self._working)

    @property
    def build_workers(self) -> tuple[str, ...]:
        """The names of all that there were."""
        return tuple(f"build worker {number}" for number, _ in enumerate(self._workers, start=1))

    def machine(self) -> tuple[Hardware, dict[str, str | None]]:
        """The machine of the first judge, while none is at work. Raises SandboxError."""
        return self._evaluators[0].machine()

    def submit(self, problem: Problem | str, source: str) -> Future[Verdict]:
        """Queues one job.

        Returns:
            Its verdict to come; an equal job's, where one was asked for. It may raise SandboxError or UsageError.

        Raises:
            UsageError: the problem is unknown or excluded, or the pool is closed.
        """
        problem = self._evaluators[0].admit(problem)
        task = _Task(problem, source, (problem.id, problem.source_for(self.device), source))
        with self._idle:
            if self._closed:
                raise UsageError("the pool is closed: open another")
            known = self._futures.get(task.key)
            if known is not None and not known.cancelled():
                self._futures.move_to_end(task.key)
                return known
            self._futures[task.key] = task.future
            self._forget_oldest()
            if self._building and may_build(source, MAX_SOURCE_BYTES):
                task.build = "due"
            self._waiting.append(task)
            self._idle.notify_all()
        return task.future

    def evaluate(self, problem: Problem | str, source: str) -> Verdict:
        """One verdict, as `Evaluator.evaluate`, from whichever device is free first. May be called from any thread."""
        return self.submit(problem, source).result()

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        """The verdict for an answer that holds no code; nothing runs."""
        return self._evaluators[0].format_error(problem, message)

    def evaluate_many(self, jobs: Iterable[PoolJob]) -> Iterator[Outcome]:
        """The outcomes of all jobs, each as soon as it is there: in the order of completion, `index` says whose it is.

        Raises:
            UsageError: a problem is unknown or excluded (before anything is judged), or a source is far too long.
        """
        admitted = [(self._evaluators[0].admit(problem), source) for problem, source in jobs]
        done: queue.SimpleQueue[tuple[int, Future[Verdict]]] = queue.SimpleQueue()
        for index, (problem, source) in enumerate(admitted):
            if source is None:
                future: Future[Verdict] = Future()
                future.set_result(self.format_error(problem, "the answer holds no fenced block with Python code"))
            else:
                future = self.submit(problem, source)
            future.add_done_callback(lambda finished, index=index: done.put((index, finished)))  # type: ignore[misc]
        for _ in admitted:
            yield _outcome(*done.get())

    def close(self) -> None:
        """Ends every judge. Jobs that wait or run are given up: their futures are cancelled or raise SandboxError."""
        with self._idle:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
            self._idle.notify_all()
        for task in waiting:
            if not task.future.cancel():  # it has failed on one device, and waited for another
                task.future.set_exception(SandboxError("the pool was closed"))
        for evaluator in self._evaluators:
            evaluator.abort()
        for worker in self._workers:
            worker.abort()
        for thread in self._threads:
            thread.join(_JOIN_S)  # one that waits for a device that another process holds is left to the process's end

    # -- a device's thread --------------------------------------------------------------------------------------------

    def _work(self, evaluator: Evaluator) -> None:
        faults = 0
        try:
            self._describe(evaluator)
            while (task := self._next(evaluator)) is not None:
                try:
                    verdict = self._judge(evaluator, task)
                except Exception as error:  # whatever it is belongs to the job: its future raises it
                    faults = faults + 1 if may_pass(error) else 0
                    self._settle_fault(task, evaluator, error, retire=faults >= FAULTS_IN_A_ROW)
                else:
                    faults = 0
                    task.future.set_result(verdict)
        finally:
            evaluator.close()

    def _next(self, evaluator: Evaluator) -> _Task | None:
        """The first job that has nothing left to build and has not failed here; None when the pool is closed or this
        device given up."""
        with self._idle:
            while not self._closed and evaluator in self._working:
                ready = (task for task in self._waiting if task.build == "over" and evaluator not in task.failed_on)
                task = next(ready, None)
                if task is None:
                    self._idle.wait()
                    continue
                self._waiting.remove(task)
                self._idle.notify_all()  # a build worker may go further ahead
                if task.failed_on or task.future.set_running_or_notify_cancel():
                    return task
        return None

    def _judge(self, evaluator: Evaluator, task: _Task) -> Verdict:
        verdict = self._kept.load(self._kept_as(task)) if self._kept is not None else None
        if verdict is None or not self._is_of_this_machine(evaluator, verdict):
            verdict = _with_ahead(evaluator.evaluate(task.problem, task.source), task.ahead_seconds)
            if self._kept is not None:
                self._kept.save(self._kept_as(task), verdict)
        self._expect_same_hardware(evaluator, verdict)
        return verdict

    def _kept_as(self, task: _Task) -> str:
        kind = self.device.split(":")[0]
        return KeptVerdicts.key(task.problem.id, task.key[1], task.source, self.protocol, kind, self.backend)

    def _is_of_this_machine(self, evaluator: Evaluator, verdict: Verdict) -> bool:
        """Whether a kept verdict's numbers would be the same here: the same device, driver and PyTorch."""
        if verdict.hardware is None:
            return True  # nothing ran
        if evaluator not in self._machines:
            self._machines[evaluator] = evaluator.machine()
        return machine_key(*self._machines[evaluator]) == machine_key(verdict.hardware, verdict.software)

    def _expect_same_hardware(self, evaluator: Evaluator, verdict: Verdict) -> None:
        if verdict.hardware is None:
            return
        with self._idle:
            self._device_name = self._device_name or verdict.hardware.name
            if verdict.hardware.name != self._device_name:
                raise UsageError(
                    f"the devices of a pool must be alike, or their numbers could not be compared; {evaluator.device} "
                    f"is {verdict.hardware.name}, another is {self._device_name}"
                )

    def _settle_fault(self, task: _Task, evaluator: Evaluator, error: Exception, *, retire: bool) -> None:
        with self._idle:
            task.failed_on.add(evaluator)
            others = [other for other in self._working if other not in task.failed_on]
            if retire and len(self._working) > 1 and evaluator in self._working:
                self._working.remove(evaluator)
            if may_pass(error) and len(task.failed_on) == 1 and others and not self._closed:
                self._waiting.appendleft(task)
            else:
                self._fail(task, error)
            for waiting in list(self._waiting):  # what had only the device that is gone
                if all(other in waiting.failed_on for other in self._working):
                    self._waiting.remove(waiting)
                    self._fail(waiting, error)
            self._idle.notify_all()

    def _fail(self, task: _Task, error: Exception) -> None:
        self._futures.pop(task.key, None)  # asked again, it is judged again
        if task.failed_on or task.future.set_running_or_notify_cancel():
            task.future.set_exception(error)

    # -- a build worker's thread --------------------------------------------------------------------------------------

    def _describe(self, evaluator: Evaluator) -> None:
        """Tells build workers what the devices are. Where that fails there is nothing to wait for: they end."""
        if not self._building or self._stand_in is not None:
            return
        described: Future[Result | None] = Future()
        try:
            described.set_result(evaluator.describe_device())
        except Exception as error:  # the device's own jobs will say what is wrong with it
            described.set_exception(error)
        with self._idle:
            self._stand_in = self._stand_in or described
            self._idle.notify_all()

    def _build(self, worker: BuildWorker, name: str) -> None:
        faults = 0
        try:
            while faults < FAULTS_IN_A_ROW and (found := self._next_to_build()) is not None:
                task, stand_in = found
                try:
                    self._on_build(name, f"building {task.problem.id}")
                    if self._kept is None or self._kept.load(self._kept_as(task)) is None:
                        task.ahead_seconds = worker.build(task.problem, task.source, stand_in.result())
                    faults = 0
                    self._on_build(name, "waiting")
                except Exception as error:  # whatever it is, the job builds for itself and says what is wrong
                    faults += 1
                    self._on_build(name, f"failed: {error}")
                finally:
                    self._settle_build(task)
        finally:
            with self._idle:
                self._building.remove(worker)
                for task in self._waiting if not self._building else ():
                    task.build = "over" if task.build == "due" else task.build
                self._idle.notify_all()
            worker.close()

    def _next_to_build(self) -> tuple[_Task, Future[Result | None]] | None:
        """The first job with something to build, unless judges are far behind, and what is known of the device; None
        when the pool is closed."""
        with self._idle:
            while not self._closed:
                ahead = sum(task.ahead_seconds is not None or task.build == "begun" for task in self._waiting)
                due = (task for task in self._waiting if task.build == "due")
                task = next(due, None) if ahead < AHEAD_OF_EACH * len(self._working) else None
                if task is not None and self._stand_in is not None:
                    task.build = "begun"
                    return task, self._stand_in
                self._idle.wait()
        return None

    def _settle_build(self, task: _Task) -> None:
        with self._idle:
            task.build = "over"
            self._idle.notify_all()

    def _forget_oldest(self) -> None:
        while len(self._futures) > REMEMBERED:
            oldest = next((key for key, future in self._futures.items() if future.done()), None)
            if oldest is None:
                return
            del self._futures[oldest]


def open_pool(
    devices: Sequence[str] | None = None,
    *,
    on_phase: Callable[[str, str], None] | None = None,
    keep: Path | None = None,
    build_workers: int | None = None,
    on_build: Callable[[str, str], None] | None = None,
    **options: Any,
) -> EvaluatorPool:
    """A pool with an evaluator on each device.

    Args:
        devices: as `kbenv.sandbox.gpu.resolve_devices` reads them: "cpu", "cuda:N" (the machine's N-th GPU, whatever
            CUDA_VISIBLE_DEVICES says), a UUID, or "all" alone. None: the first GPU that PyTorch sees, else the CPU.
        on_phase: called with the device and the phase that its judge enters, from the device's thread.
        keep, build_workers, on_build: as for `EvaluatorPool`.
        options: as for `Evaluator`.

    Raises:
        UsageError: a device or an option is not to be had.
    """
    say = on_phase or (lambda device, phase: None)
    evaluators = [
        Evaluator(device=device, on_phase=lambda phase, device=device: say(device, phase), **options)  # type: ignore[misc]
        for device in (["auto"] if devices is None else resolve_devices(devices))
    ]
    return EvaluatorPool(evaluators, keep=keep, build_workers=build_workers, on_build=on_build)


def evaluate_many(
    jobs: Iterable[PoolJob], devices: Sequence[str] | None = None, *, keep: Path | None = None, **options: Any
) -> Iterator[Outcome]:
    """Judges all jobs on the devices; yields an `Outcome` for each as soon as it is there.

        jobs = [("core/level1/relu", source) for source in sources]
        for outcome in evaluate_many(jobs, devices=["cuda:0", "cuda:1"], keep=Path("verdicts")):
            print(outcome.index, outcome.verdict.status if outcome.verdict else outcome.fault)

    Interrupted, it leaves no process; with `keep` the same call goes on where it was.

    Args:
        jobs: problems (or their names) with sources; None in the place of a source is an answer without code.
        devices, keep, options (`build_workers` is one): as for `open_pool`.

    Raises:
        UsageError: nothing was judged.
    """
    with open_pool(devices, keep=keep, **options) as pool:
        yield from pool.evaluate_many(jobs)


def _make_workers(evaluator: Evaluator, devices: int, wanted: int | None) -> list[BuildWorker]:
    """Raises UsageError when so many are wanted and none can be had."""
    if wanted is not None and wanted < 0:
        raise UsageError(f"build workers must be 0 or more; found {wanted}")
    count = default_workers(evaluator.device.split(":")[0], devices) if wanted is None else wanted
    workers = evaluator.build_workers(count) if count else []
    if wanted and not workers:
        raise UsageError(
            "build workers need the process sandbox (--sandbox process) as root, where judges share what is built; "
            "leave them out: a job builds for itself"
        )
    return workers


def _with_ahead(verdict: Verdict, seconds: float | None) -> Verdict:
    if seconds is None or verdict.build is None:
        return verdict
    return verdict.model_copy(update={"build": verdict.build.model_copy(update={"ahead_seconds": seconds})})


def _outcome(index: int, future: Future[Verdict]) -> Outcome:
    """Raises what is the caller's fault; a fault of the machine is in the outcome."""
    error = future.exception()
    if error is None:
        return Outcome(index, future.result())
    if isinstance(error, SandboxError):
        return Outcome(index, None, str(error))
    raise error
