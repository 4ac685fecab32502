"""Many jobs on several scripted devices: order, equal jobs, faults, and an end at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kbenv.errors import ProblemExcludedError, ReferenceFaultError, SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.pool import FAULTS_IN_A_ROW, EvaluatorPool, Outcome, open_pool
from kbenv.protocol import get_protocol
from kbenv.verdict import Status, Verdict
from tests.devices import Answer, Device, broken, right
from tests.fakes import make_problem

PROBLEM = make_problem()


@pytest.fixture
def make_pool() -> Iterator[Callable[..., EvaluatorPool]]:
    pools: list[EvaluatorPool] = []

    def make(*devices: Device, **options: Any) -> EvaluatorPool:
        pools.append(EvaluatorPool(cast("list[Evaluator]", list(devices)), **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


MakePool = Callable[..., EvaluatorPool]


def judge_all(pool: EvaluatorPool, *sources: str | None) -> dict[int, Outcome]:
    return {outcome.index: outcome for outcome in pool.evaluate_many([(PROBLEM, source) for source in sources])}


# -- the usual --------------------------------------------------------------------------------------------------------


def test_every_job_has_its_own_verdict_whichever_device_took_it(make_pool: MakePool) -> None:
    devices = [Device(f"cuda:{n}", lambda d, s: (time.sleep(0.002), right(d, s))[1]) for n in range(4)]
    sources = [f"source {n}" for n in range(60)]
    found = judge_all(make_pool(*devices), *sources)
    assert [found[n].verdict.submission.sha256 for n in range(60)] == sources  # type: ignore[union-attr]
    assert sorted(source for device in devices for source in device.judged) == sorted(sources)
    assert all(device.judged for device in devices)


def test_outcomes_come_in_the_order_of_completion(make_pool: MakePool) -> None:
    slow = threading.Event()

    def answer(device: Device, source: str) -> Verdict:
        if source == "slow":
            slow.wait(10)
        return right(device, source)

    pool = make_pool(Device("cuda:0", answer), Device("cuda:1", answer))
    order = []
    for outcome in pool.evaluate_many([(PROBLEM, source) for source in ("slow", "a", "b", "c")]):
        order.append(outcome.index)
        if len(order) == 3:
            slow.set()
    assert sorted(order[:3]) == [1, 2, 3]
    assert order[3] == 0


def test_devices_work_at_the_same_time(make_pool: MakePool) -> None:
    together = threading.Barrier(3, timeout=10)

    def answer(device: Device, source: str) -> Verdict:
        together.wait()  # breaks unless all three are here
        return right(device, source)

    found = judge_all(make_pool(*(Device(f"cuda:{n}", answer) for n in range(3))), "a", "b", "c")
    assert all(outcome.verdict is not None for outcome in found.values())


def test_equal_jobs_are_judged_once_also_while_the_first_still_runs(make_pool: MakePool) -> None:
    devices = [Device(f"cuda:{n}", lambda d, s: (time.sleep(0.01), right(d, s))[1]) for n in range(2)]
    pool = make_pool(*devices)
    found = judge_all(pool, "a", "a", "b", "a", "b")
    assert len(found) == 5
    assert sorted(source for device in devices for source in device.judged) == ["a", "b"]
    judge_all(pool, "a")
    assert sum(len(device.judged) for device in devices) == 2


def test_the_same_source_for_another_problem_is_another_job(make_pool: MakePool) -> None:
    device = Device("cuda:0", right)
    list(make_pool(device).evaluate_many([(PROBLEM, "a"), (make_problem(id="core/level1/other"), "a")]))
    assert device.judged == ["a", "a"]


def test_an_answer_without_code_needs_no_device(make_pool: MakePool) -> None:
    device = Device("cuda:0", right)
    found = judge_all(make_pool(device), None, "a")
    assert found[0].verdict is not None
    assert found[0].verdict.status is Status.FORMAT_ERROR
    assert device.judged == ["a"]


def test_an_excluded_problem_is_refused_before_anything_is_judged(make_pool: MakePool) -> None:
    device = Device("cuda:0", right, protocol=get_protocol().model_copy(update={"excluded": ("x",)}))
    pool = make_pool(device)
    with pytest.raises(ProblemExcludedError):
        list(pool.evaluate_many([(PROBLEM, "a"), ("x", "a")]))
    assert device.judged == []


def test_it_does_what_an_environment_asks(make_pool: MakePool) -> None:
    pool = make_pool(Device("cuda:0", right))
    assert pool.evaluate(PROBLEM, "a").credited
    assert pool.device == "cuda:0"
    assert pool.protocol == get_protocol()


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_on_the_only_device_is_no_verdict_and_the_others_go_on(make_pool: MakePool) -> None:
    def answer(device: Device, source: str) -> Verdict:
        return broken(device, source) if source == "b" else right(device, source)

    device = Device("cuda:0", answer)
    found = judge_all(make_pool(device), "a", "b", "c")
    assert found[1] == Outcome(1, None, "cuda:0 fell off the bus")
    assert found[0].verdict is not None
    assert found[2].verdict is not None
    assert device.judged.count("b") == 1  # the evaluator itself has tried it twice


def test_a_fault_is_tried_on_another_device(make_pool: MakePool) -> None:
    good = Device("cuda:1", right)

    def answer(device: Device, source: str) -> Verdict:
        return broken(device, source)

    bad = Device("cuda:0", answer)
    found = judge_all(make_pool(bad, good), *(f"source {n}" for n in range(20)))
    assert all(outcome.verdict is not None for outcome in found.values())


def test_a_device_that_fails_again_and_again_is_given_up(make_pool: MakePool) -> None:
    bad = Device("cuda:0", broken)
    good = Device("cuda:1", lambda d, s: (time.sleep(0.005), right(d, s))[1])
    pool = make_pool(bad, good)
    found = judge_all(pool, *(f"source {n}" for n in range(40)))
    assert all(outcome.verdict is not None for outcome in found.values())
    assert len(bad.judged) == FAULTS_IN_A_ROW
    assert pool.devices == ("cuda:1",)


def test_where_all_devices_fail_every_job_says_so_and_nothing_hangs(make_pool: MakePool) -> None:
    found = judge_all(make_pool(Device("cuda:0", broken), Device("cuda:1", broken)), *(f"s{n}" for n in range(10)))
    assert len(found) == 10
    assert all(outcome.verdict is None and "fell off the bus" in (outcome.fault or "") for outcome in found.values())


def test_what_would_only_come_again_is_not_tried_elsewhere_and_gives_no_device_up(make_pool: MakePool) -> None:
    def answer(device: Device, source: str) -> Verdict:
        raise ReferenceFaultError("the reference raises")

    devices = [Device(f"cuda:{n}", answer) for n in range(2)]
    pool = make_pool(*devices)
    found = judge_all(pool, *(f"s{n}" for n in range(8)))
    assert sum(len(device.judged) for device in devices) == 8
    assert all(outcome.fault == "the reference raises" for outcome in found.values())
    assert len(pool.devices) == 2


def test_a_job_that_failed_is_judged_again_when_asked_again(make_pool: MakePool) -> None:
    outcomes: list[Answer] = [broken, right]
    device = Device("cuda:0", lambda d, s: outcomes.pop(0)(d, s))
    pool = make_pool(device)
    assert judge_all(pool, "a")[0].verdict is None
    assert judge_all(pool, "a")[0].verdict is not None


def test_a_programming_error_in_a_judgement_is_raised_and_not_called_a_fault(make_pool: MakePool) -> None:
    def answer(device: Device, source: str) -> Verdict:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        judge_all(make_pool(Device("cuda:0", answer)), "a")


def test_devices_that_differ_are_refused(make_pool: MakePool) -> None:
    both = threading.Barrier(2, timeout=10)

    def answer(device: Device, source: str) -> Verdict:
        both.wait()
        return right(device, source)

    pool = make_pool(Device("cuda:0", answer, gpu="H200"), Device("cuda:1", answer, gpu="A100"))
    with pytest.raises(UsageError, match="devices of a pool must be alike"):
        judge_all(pool, "a", "b")


def test_rules_that_differ_are_refused() -> None:
    devices = [Device("cuda:0", right), Device("cuda:1", right, protocol=get_protocol("kernelbench"))]
    with pytest.raises(UsageError, match="one protocol"):
        EvaluatorPool(cast("list[Evaluator]", devices))
    with pytest.raises(UsageError, match="at least one evaluator"):
        EvaluatorPool([])


# -- the end ----------------------------------------------------------------------------------------------------------


def test_an_interrupt_ends_what_runs_and_closes_every_device(make_pool: MakePool) -> None:
    def answer(device: Device, source: str) -> Verdict:
        if source != "quick":
            device.wait()
        return right(device, source)

    devices = [Device(f"cuda:{n}", answer) for n in range(3)]
    started = time.monotonic()

    def interrupted() -> None:
        with make_pool(*devices) as pool:
            for _ in pool.evaluate_many([(PROBLEM, f"{s}") for s in ("quick", *(f"long {n}" for n in range(50)))]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - started < 10
    assert all(device.closed for device in devices)
    assert sum(len(device.judged) for device in devices) <= 5  # nothing more was begun


def test_a_closed_pool_takes_nothing_and_leaves_no_thread(make_pool: MakePool) -> None:
    pool = make_pool(Device("cuda:77", right))
    judge_all(pool, "a")
    pool.close()
    with pytest.raises(UsageError, match="closed"):
        pool.submit(PROBLEM, "b")
    assert not [thread for thread in threading.enumerate() if thread.name == "kbenv cuda:77"]


def test_what_waits_when_a_pool_is_closed_is_cancelled(make_pool: MakePool) -> None:
    def answer(device: Device, source: str) -> Verdict:
        device.wait()
        return right(device, source)

    pool = make_pool(Device("cuda:0", answer))
    running, waiting = pool.submit(PROBLEM, "a"), pool.submit(PROBLEM, "b")
    while not running.running():
        time.sleep(0.001)
    pool.close()
    assert waiting.cancelled()
    with pytest.raises(SandboxError):
        running.result(timeout=5)


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_with_keep_a_later_pool_judges_only_what_is_missing(make_pool: MakePool, tmp_path: Path) -> None:
    first = Device("cuda:0", right)
    for outcome in make_pool(first, keep=tmp_path / "kept").evaluate_many([(PROBLEM, s) for s in ("a", "b", "c")]):
        if outcome.index == 1:
            break
    done = set(first.judged)
    second = Device("cuda:1", right)
    found = judge_all(make_pool(second, keep=tmp_path / "kept"), "a", "b", "c", "d")
    assert "d" in second.judged
    assert not set(second.judged) & {"a", "b"} & done
    assert [found[n].verdict.submission.sha256 for n in range(4)] == ["a", "b", "c", "d"]  # type: ignore[union-attr]


def test_what_is_kept_of_another_gpu_or_other_rules_is_judged_anew(make_pool: MakePool, tmp_path: Path) -> None:
    judge_all(make_pool(Device("cuda:0", right, gpu="H200"), keep=tmp_path), "a")
    other = Device("cuda:0", right, gpu="A100")
    judge_all(make_pool(other, keep=tmp_path), "a")
    assert other.judged == ["a"]
    lenient = Device("cuda:0", right, gpu="A100", protocol=get_protocol("kernelbench"))
    judge_all(make_pool(lenient, keep=tmp_path), "a")
    assert lenient.judged == ["a"]
    again = Device("cuda:0", right, gpu="A100")
    judge_all(make_pool(again, keep=tmp_path), "a")
    assert again.judged == []


def test_a_damaged_kept_verdict_is_named(make_pool: MakePool, tmp_path: Path) -> None:
    judge_all(make_pool(Device("cuda:0", right), keep=tmp_path), "a")
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")
    with pytest.raises(UsageError, match=path.name[:8]):
        judge_all(make_pool(Device("cuda:0", right), keep=tmp_path), "a")


def test_a_pool_is_opened_on_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    def make(**options: Any) -> Device:
        opened.append(options)
        return Device(options["device"], right)

    monkeypatch.setattr("kbenv.pool.Evaluator", make)
    with open_pool(["cpu", "cpu"], protocol="verified", sandbox="process", build_workers=0) as pool:
        assert pool.devices == ("cpu", "cpu")
    assert [(o["device"], o["protocol"], o["sandbox"]) for o in opened] == [("cpu", "verified", "process")] * 2
    with open_pool() as pool:
        assert pool.devices == ("auto",)
