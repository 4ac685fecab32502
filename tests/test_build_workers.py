"""Build workers in a pool of scripted devices: who builds what, when, and what becomes of it when that fails."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kbenv.build_worker import MOST_FOR_EACH, BuildWorker, default_workers, may_build
from kbenv.cli import judging
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.pool import AHEAD_OF_EACH, FAULTS_IN_A_ROW, EvaluatorPool
from kbenv.protocol import get_protocol
from kbenv.sandbox.docker import DockerCarrier
from kbenv.sandbox.host import Sandbox
from kbenv.sandbox.process import ProcessCarrier
from kbenv.verdict import Build, Verdict
from tests.devices import Device, Worker, right
from tests.fakes import make_problem

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = make_problem()
WAIT_S = 20.0
NO_BUILD = Build(
    requested=3, from_cache=3, compiled=0, slim=0, slim_failed=0, headers_precompiled=0, declined=(), seconds=0.1
)


def built(name: str) -> str:
    """A source with something to build."""
    return f"# {name}\nload_inline"


def with_build(device: Device, source: str) -> Verdict:
    return right(device, source).model_copy(update={"build": NO_BUILD})


def nothing(worker: Worker, source: str) -> None:
    pass


@pytest.fixture
def make_pool() -> Iterator[Callable[..., EvaluatorPool]]:
    pools: list[EvaluatorPool] = []

    def make(*devices: Device, **options: Any) -> EvaluatorPool:
        options = {"build_workers": len(devices[0].workers)} | options
        pools.append(EvaluatorPool(cast("list[Evaluator]", list(devices)), **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


MakePool = Callable[..., EvaluatorPool]


def test_a_judge_takes_what_is_ready_while_something_is_built_and_no_compiler_holds_it(make_pool: MakePool) -> None:
    go = threading.Event()
    device = Device("cuda:0", right, workers=[Worker(lambda worker, source: cast("None", go.wait(WAIT_S)))])
    pool = make_pool(device)
    slow, quick = pool.submit(PROBLEM, built("slow")), pool.submit(PROBLEM, "quick")
    assert quick.result(WAIT_S).credited
    assert device.judged == ["quick"]
    go.set()
    assert slow.result(WAIT_S).credited
    assert device.workers[0].built == [built("slow")]
    assert device.workers[0].told == [{"name": "GPU of the test"}]


def test_order_is_kept_among_what_is_built(make_pool: MakePool) -> None:
    device = Device("cuda:0", right, workers=[Worker(nothing)])
    sources = [built(str(n)) for n in range(20)]
    pool = make_pool(device)
    for future in [pool.submit(PROBLEM, source) for source in sources]:
        future.result(WAIT_S)
    assert device.workers[0].built == device.judged == sources


def test_what_has_nothing_to_build_goes_past_the_workers(make_pool: MakePool) -> None:
    device = Device("cuda:0", right, workers=[Worker(nothing)])
    make_pool(device).submit(PROBLEM, "import torch").result(WAIT_S)
    assert device.workers[0].built == []


def test_workers_go_ahead_of_the_judges_but_not_without_end(make_pool: MakePool) -> None:
    judging, go = threading.Event(), threading.Event()

    def answer(device: Device, source: str) -> Verdict:
        judging.set()
        go.wait(WAIT_S)
        return right(device, source)

    device = Device("cuda:0", answer, workers=[Worker(nothing)])
    reached = threading.Event()

    def on_build(worker: str, doing: str) -> None:
        if doing == "waiting" and len(device.workers[0].built) == AHEAD_OF_EACH + 1:
            reached.set()

    pool = make_pool(device, on_build=on_build)
    first = pool.submit(PROBLEM, built("first"))
    assert judging.wait(WAIT_S)
    futures = [pool.submit(PROBLEM, built(str(n))) for n in range(3 * AHEAD_OF_EACH)]
    assert reached.wait(WAIT_S)
    # Its thread has said what it does last before it looks for more: held up here, it would have begun the next.
    assert not threading.Event().wait(0.05)
    assert len(device.workers[0].built) == AHEAD_OF_EACH + 1
    go.set()
    for future in (first, *futures):
        future.result(WAIT_S)
    assert len(device.workers[0].built) == 3 * AHEAD_OF_EACH + 1


def test_several_workers_build_at_the_same_time(make_pool: MakePool) -> None:
    together = threading.Barrier(3, timeout=WAIT_S)
    workers = [Worker(lambda worker, source: cast("None", together.wait())) for _ in range(3)]
    pool = make_pool(Device("cuda:0", right, workers=workers))
    for future in [pool.submit(PROBLEM, built(str(n))) for n in range(3)]:
        assert future.result(WAIT_S).credited
    assert pool.build_workers == ("build worker 1", "build worker 2", "build worker 3")


def test_the_verdict_says_what_was_spent_before_the_job(make_pool: MakePool) -> None:
    device = Device("cuda:0", with_build, workers=[Worker(nothing)])
    pool = make_pool(device)
    ahead = pool.submit(PROBLEM, built("a")).result(WAIT_S).build
    assert ahead == NO_BUILD.model_copy(update={"ahead_seconds": 1.5})
    assert pool.submit(PROBLEM, "plain").result(WAIT_S).build == NO_BUILD


def test_a_workers_fault_costs_no_verdict_and_it_is_given_up_after_several(make_pool: MakePool) -> None:
    def fail(worker: Worker, source: str) -> None:
        raise SandboxError("the judge was lost")

    said: list[str] = []
    device = Device("cuda:0", with_build, workers=[Worker(fail)])
    pool = make_pool(device, on_build=lambda worker, doing: said.append(f"{worker} {doing}"))
    verdicts = [pool.submit(PROBLEM, built(str(n))) for n in range(10)]
    assert all(future.result(WAIT_S).build == NO_BUILD for future in verdicts)
    assert len(device.workers[0].built) == FAULTS_IN_A_ROW
    assert said.count("build worker 1 failed: the judge was lost") == FAULTS_IN_A_ROW
    assert pool.submit(PROBLEM, built("later")).result(WAIT_S).credited
    assert device.workers[0].closed


def test_where_the_device_cannot_be_described_jobs_build_for_themselves(make_pool: MakePool) -> None:
    class Mute(Device):
        def describe_device(self) -> dict[str, str]:
            raise SandboxError("no answer")

    device = Mute("cuda:0", right, workers=[Worker(nothing)])
    pool = make_pool(device)
    for future in [pool.submit(PROBLEM, built(str(n))) for n in range(5)]:
        assert future.result(WAIT_S).credited
    assert device.workers[0].built == []


def test_what_is_kept_is_not_built_again(make_pool: MakePool, tmp_path: Path) -> None:
    make_pool(Device("cuda:0", right), keep=tmp_path).submit(PROBLEM, built("a")).result(WAIT_S)
    device = Device("cuda:0", right, workers=[Worker(nothing)])
    pool = make_pool(device, keep=tmp_path)
    for name in "ab":
        pool.submit(PROBLEM, built(name)).result(WAIT_S)
    assert device.workers[0].built == device.judged == [built("b")]


def test_closing_ends_the_workers_in_the_middle_of_a_build(make_pool: MakePool) -> None:
    begun = threading.Event()

    def wait(worker: Worker, source: str) -> None:
        begun.set()
        assert worker.aborted.wait(WAIT_S)
        raise SandboxError("the sandbox was told to stop")

    device = Device("cuda:0", right, workers=[Worker(wait)])
    pool = make_pool(device)
    futures = [pool.submit(PROBLEM, built(name)) for name in "ab"]
    assert begun.wait(WAIT_S)
    pool.close()
    assert all(future.cancelled() for future in futures)
    assert device.workers[0].closed
    assert device.judged == []
    assert not [thread for thread in threading.enumerate() if thread.name == "kbenv build worker 1"]


def test_workers_that_cannot_be_had_are_refused_when_asked_for_and_else_left_out(make_pool: MakePool) -> None:
    assert make_pool(Device("cuda:0", right), build_workers=None).build_workers == ()
    with pytest.raises(UsageError, match="process sandbox"):
        make_pool(Device("cuda:0", right), build_workers=2)
    with pytest.raises(UsageError, match="0 or more; found -1"):
        make_pool(Device("cuda:0", right), build_workers=-1)


def test_the_cpu_has_none_unless_asked_and_a_gpu_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(32))
    assert default_workers("cpu", 1) == 0
    assert default_workers("cuda", 1) == MOST_FOR_EACH
    assert default_workers("cuda", 2) == 2 * MOST_FOR_EACH
    assert default_workers("cuda", 8) == 16  # half of the cores


def test_the_command_line_builds_ahead_where_answers_can_wait_or_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_with(workers: int | None, *, one_at_a_time: bool) -> int:
        device = Device("cuda:0", right, workers=[Worker(nothing) for _ in range(3)])
        monkeypatch.setattr("kbenv.cli.judging.open_evaluator", lambda *_: device)
        arguments = argparse.Namespace(devices=None, device="auto", build_workers=workers)
        with judging.open_pool(arguments, lambda _: None, one_at_a_time=one_at_a_time) as pool:
            return len(pool.build_workers)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    assert open_with(None, one_at_a_time=True) == 0
    assert open_with(None, one_at_a_time=False) == 3
    assert open_with(2, one_at_a_time=True) == 2
    assert open_with(0, one_at_a_time=False) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: elsewhere nothing that is built is kept")
def test_a_process_sandbox_has_workers_that_hold_no_device() -> None:
    carrier = ProcessCarrier().build_worker()
    assert carrier is not None
    assert carrier.lock is None
    assert ProcessCarrier().lock == "cpu"


def test_neither_docker_nor_a_user_without_root_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Sandbox(ProcessCarrier()).build_worker() is None
    assert DockerCarrier.build_worker(cast("DockerCarrier", None)) is None


def test_workers_share_half_of_the_machines_memory_but_no_more_than_a_job_may_use() -> None:
    protocol = get_protocol()
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for count in (1, 4, 1000):
        worker = BuildWorker(cast("Sandbox", None), protocol, "cuda", count)
        bytes_each = worker._protocol.limits.host_memory_bytes
        assert bytes_each == min(protocol.limits.host_memory_bytes, max(4 << 30, machine // (4 * count)))
        assert worker._protocol.limits.model_copy(update={"host_memory_bytes": 0}) == protocol.limits.model_copy(
            update={"host_memory_bytes": 0}
        )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from torch.utils.cpp_extension import load", True), ("x = load_inline('a', '')", True),
        ("import triton\n@triton.jit\ndef f(): ...", False), ("import cuda_raw", False), ("class ModelNew: ...", False),
        ("load_inline('\ud800')", False), ("load_inline" + "#" * 100, False),
    ],
)  # fmt: skip
def test_a_source_is_built_ahead_when_it_speaks_of_extensions(source: str, expected: bool) -> None:
    assert may_build(source, 60) is expected


ARCHITECTURES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from kbenv.sandbox.runner.stand_in import stand_in

stand_in(json.loads(sys.argv[2]))
from torch.utils.cpp_extension import _get_cuda_arch_flags
import os
os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
try:
    torch.zeros(1, device="cuda")
    made = True
except (AssertionError, RuntimeError):
    made = False
print(json.dumps({
    "flags": _get_cuda_arch_flags(), "name": torch.cuda.get_device_name(0), "there": torch.cuda.is_available(),
    "capability": torch.cuda.get_device_capability(), "sms": torch.cuda.get_device_properties(0).multi_processor_count,
    "made": made,
}))
"""


@pytest.mark.parametrize(
    ("capability", "architectures", "number"),
    [((9, 0), ["sm_80", "sm_90", "sm_100"], "90"), ((8, 0), ["sm_80", "sm_90"], "80"), ((12, 1), ["sm_90"], "90")],
)
def test_a_stand_in_gives_compilers_the_flags_of_the_device(
    capability: tuple[int, int], architectures: list[str], number: str
) -> None:
    properties = {"name": "a GPU", "major": capability[0], "minor": capability[1], "multi_processor_count": 132}
    device = {"properties": properties, "architectures": architectures}
    done = subprocess.run(
        [sys.executable, "-c", ARCHITECTURES, str(ROOT), json.dumps(device)],
        capture_output=True, text=True, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    said = json.loads(done.stdout)
    code = f"-gencode=arch=compute_{number},code="
    assert said["flags"] == [f"{code}compute_{number}", f"{code}sm_{number}"]
    assert said | {"flags": None} == {
        "flags": None, "name": "a GPU", "there": True, "capability": list(capability), "sms": 132, "made": False,
    }  # fmt: skip
