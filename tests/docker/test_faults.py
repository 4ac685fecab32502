"""Faults of the machine, injected for real: one costs a try, one in every try is an exception, none leaves anything."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

import kbenv.sandbox.docker as docker_module
import kbenv.sandbox.host as host_module
from kbenv.errors import SandboxError
from kbenv.evaluator import CPU_THREADS, Evaluator
from kbenv.problems import load_problem
from kbenv.sandbox.docker import DockerCarrier, DockerSettings, owner_label, remove_orphans
from kbenv.sandbox.engine import IMAGE, LABEL, connect, facts_of
from kbenv.sandbox.host import Sandbox
from kbenv.sandbox.job import Job
from tests.docker.proxy import EngineProxy
from tests.docker.rules import HONEST, RELU, quick_protocol
from tests.docker.traces import containers_of, created_since, locks_are_free, nothing_left, processes_of, until

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
MID_JOB = "standard"
SLOW_TO_BUILD = f"import time\n\ntime.sleep(3)\n{HONEST}"
WRONG = HONEST.replace("clamp(min=0)", "clamp(min=1)")
_SIGNAL_JUDGE = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{pid}/cmdline", "rb") as command, open(f"/proc/{pid}/stat") as stat:
        if b"boot.py\\0judge" in command.read() and stat.read().rpartition(")")[2].split()[1] == "1":
            os.kill(int(pid), int(sys.argv[1]))
"""
"""The judge is the only child of the container's init; the fork server has its command line as well."""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else's containers and files are counted, nor anybody else's jobs waited for."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    owner = owner_label()
    monkeypatch.setattr(docker_module, "owner_label", lambda: f"{owner} {tmp_path.name}")


@pytest.fixture
def proxy(engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProxy]:
    """What stands between the engine and the evaluators of a test; nothing may be left when the test is over."""
    with nothing_left(engine), EngineProxy() as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        yield proxy


class Mischief:
    """An evaluator's `on_phase` that does something in the middle of the next `times` tries."""

    def __init__(self, do: Callable[[], None], times: int) -> None:
        self.tries = 0
        self._do = do
        self._times = times

    def __call__(self, phase: str) -> None:
        self.tries += phase == "reference"
        if phase == MID_JOB and self._times > 0:
            self._times -= 1
            self._do()


def evaluator_with(on_phase: Callable[[str], None] | None = None, **limits: Any) -> Evaluator:
    return Evaluator(protocol=quick_protocol(**limits), device="cpu", sandbox="docker", on_phase=on_phase)


def open_sandbox(timeout_s: float = 60.0, settings: DockerSettings | None = None, **options: Any) -> Sandbox:
    client = connect(timeout_s)
    return Sandbox(DockerCarrier(client, facts_of(client), None, settings or DockerSettings()), **options)


def make_job(source: str = HONEST, **limits: Any) -> Job:
    return Job(load_problem(RELU), source, quick_protocol(**limits), "cpu", CPU_THREADS)


def run(sandbox: Sandbox, job: Job | None = None) -> str:
    """The status."""
    return str(sandbox.run(job or make_job(), lambda phase: None)["status"])


def only_container(engine: docker.DockerClient) -> Any:
    (container,) = containers_of(engine)
    return engine.containers.get(container)


def signal_judge(container: Any, number: int) -> None:
    code, output = container.exec_run(["python3", "-I", "-c", _SIGNAL_JUDGE, str(number)])
    assert code in (0, 137), output  # 137: the container ended first


Fault = Callable[[docker.DockerClient, EngineProxy], None]
FAULTS: dict[str, Fault] = {
    "container-killed": lambda engine, proxy: only_container(engine).kill(),
    "container-removed": lambda engine, proxy: only_container(engine).remove(force=True),
    "judge-killed": lambda engine, proxy: signal_judge(only_container(engine), signal.SIGKILL),
    "connection-cut": lambda engine, proxy: proxy.cut(),
}


# -- in the middle of a job -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_in_the_middle_of_a_job_costs_a_try_and_no_verdict(fault, engine, proxy):
    began = time.time()
    mischief = Mischief(lambda: FAULTS[fault](engine, proxy), times=1)
    with evaluator_with(mischief) as evaluator:
        verdict = evaluator.evaluate(RELU, HONEST)
    assert verdict.credited, verdict.message
    assert mischief.tries == 2
    assert len(created_since(engine, began)) == 2


@pytest.mark.parametrize("fault", ["container-killed", "connection-cut"])
def test_a_fault_in_every_try_is_an_error_and_the_next_job_is_judged(fault, engine, proxy):
    began = time.time()
    mischief = Mischief(lambda: FAULTS[fault](engine, proxy), times=2)
    with evaluator_with(mischief) as evaluator:
        with pytest.raises(SandboxError, match="the judge was lost"):
            evaluator.evaluate(RELU, HONEST)
        assert mischief.tries == 2
        assert containers_of(engine) == []
        assert locks_are_free()
        assert evaluator.evaluate(RELU, HONEST).credited
    assert len(created_since(engine, began)) == 3


def test_an_engine_that_goes_away_for_good_is_an_error_that_says_so_within_seconds(proxy):
    with evaluator_with(Mischief(proxy.close, times=1)) as evaluator:
        began = time.monotonic()
        with pytest.raises(SandboxError, match=r"engine at tcp://127\.0\.0\.1:\d+ could not .*: Connection refused"):
            evaluator.evaluate(RELU, HONEST)
        assert time.monotonic() - began < 20


def test_an_interrupt_in_the_middle_of_a_job_leaves_an_evaluator_that_judges(engine, proxy):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with evaluator_with(Mischief(interrupt, times=1)) as evaluator:
        with pytest.raises(KeyboardInterrupt):
            evaluator.evaluate(RELU, HONEST)
        assert containers_of(engine) == []
        assert locks_are_free()
        assert evaluator.evaluate(RELU, HONEST).credited


def test_a_judge_that_is_silent_for_longer_than_a_request_may_take_is_not_lost(engine, proxy):
    began = time.time()
    with open_sandbox(timeout_s=2.0) as sandbox:
        assert run(sandbox, make_job(SLOW_TO_BUILD)) == "PASSED"
    assert len(created_since(engine, began)) == 1


# -- between jobs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["container-removed", "connection-cut", "judge-stopped"])
def test_a_judge_lost_between_jobs_is_replaced_and_costs_no_try(fault, engine, proxy, monkeypatch):
    monkeypatch.setattr(host_module, "_PING_S", 1.0)
    began = time.time()
    mischief = Mischief(lambda: None, times=0)
    with evaluator_with(mischief) as evaluator:
        assert evaluator.evaluate(RELU, HONEST).credited
        if fault == "judge-stopped":
            signal_judge(only_container(engine), signal.SIGSTOP)
        else:
            FAULTS[fault](engine, proxy)
        assert evaluator.evaluate(RELU, HONEST).credited
        assert mischief.tries == 2
        assert len(containers_of(engine)) == 1
    assert len(created_since(engine, began)) == 2


@pytest.mark.parametrize("engine_is", ["gone", "frozen"])
def test_closing_takes_seconds_when_the_engine_is(engine_is, proxy, monkeypatch):
    monkeypatch.setattr(docker_module, "_STOP_S", 1.0)
    evaluator = evaluator_with()
    assert evaluator.evaluate(RELU, HONEST).credited
    proxy.freeze() if engine_is == "frozen" else proxy.close()
    began = time.monotonic()
    evaluator.close()
    assert time.monotonic() - began < 5


def test_an_evaluator_that_is_closed_and_kept_holds_nothing_open(engine):
    with nothing_left(engine):
        evaluator = evaluator_with()
        assert evaluator.evaluate(RELU, HONEST).credited
        evaluator.close()
    evaluator.close()


# -- while a container starts -----------------------------------------------------------------------------------------


def test_a_container_that_is_created_and_attached_but_cannot_start_is_removed(engine, proxy):
    began = time.time()
    with open_sandbox(settings=DockerSettings(mounts=("/proc/sys",))) as sandbox:
        with pytest.raises(SandboxError, match=r"could not start a container: .*cannot be mounted"):
            run(sandbox)
        assert len(created_since(engine, began)) == 1
        assert containers_of(engine) == []


def test_a_container_whose_creation_was_cut_off_is_removed_when_it_appears(engine, proxy, monkeypatch):
    began = time.time()
    create = docker.api.client.APIClient.create_container_from_config
    later: list[threading.Timer] = []

    def cut_off(client: docker.api.client.APIClient, *arguments: Any) -> None:
        later.append(threading.Timer(0.3, create, (client, *arguments)))
        later[0].start()
        raise ConnectionError("the connection was cut")

    with open_sandbox() as sandbox, monkeypatch.context() as patch:
        patch.setattr(docker.api.client.APIClient, "create_container_from_config", cut_off)
        with pytest.raises(SandboxError, match="the connection was cut"):
            run(sandbox)
        later[0].join()
    assert len(created_since(engine, began)) == 1


def test_an_engine_that_does_not_answer_is_an_error_in_bounded_time(proxy, monkeypatch):
    monkeypatch.setattr(docker_module, "_STOP_S", 1.0)
    with open_sandbox(timeout_s=2.0) as sandbox:
        proxy.freeze()
        began = time.monotonic()
        with pytest.raises(SandboxError, match=r"could not start a container: .*timed out"):
            run(sandbox)
        assert time.monotonic() - began < 10


def test_orphans_that_cannot_be_removed_do_not_prevent_a_start(proxy, monkeypatch):
    def fail(client: docker.DockerClient) -> None:
        raise docker.errors.APIError("removal failed")

    monkeypatch.setattr(docker_module, "remove_orphans", fail)
    with open_sandbox() as sandbox:
        assert run(sandbox) == "PASSED"


# -- the host process -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def judging(sandbox: str = "docker", count: int = 1) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that judges, and its label."""
    command = [sys.executable, "-m", "tests.docker.judging", sandbox, str(count)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def wait_for_phase(process: subprocess.Popen[str], phase: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[1] == phase:
            return
    raise AssertionError(f"{phase} was never reached")


def test_a_host_process_killed_in_the_middle_of_a_job_leaves_nothing(engine):
    began = time.time()
    with nothing_left(engine), judging() as (process, owner):
        wait_for_phase(process, MID_JOB)
        process.kill()
        process.wait()
        until(lambda: containers_of(engine, owner) == [], "the container ends with its host process")
        created = created_since(engine, began, owner)
        assert len(created) == 1
        until(lambda: processes_of(created) == [], "no process of it is left")
        assert locks_are_free()


def test_what_a_host_process_leaves_that_is_killed_before_its_container_runs_goes_at_the_next_start(engine, proxy):
    with judging() as (process, owner):
        until(lambda: containers_of(engine, owner) != [], "a container is created")
        process.kill()
        process.wait()
    with open_sandbox() as sandbox:
        assert run(sandbox) == "PASSED"
        until(lambda: containers_of(engine, owner) == [], "no container is left")


@pytest.mark.parametrize("moment", ["while the container starts", "in the middle of a job"])
def test_ctrl_c_ends_at_once_and_leaves_nothing(moment, engine):
    began = time.time()
    with nothing_left(engine), judging() as (process, owner):
        if moment == "in the middle of a job":
            wait_for_phase(process, MID_JOB)
        else:
            until(lambda: containers_of(engine, owner) != [], "a container is created")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=5)
        assert containers_of(engine, owner) == []
        created = created_since(engine, began, owner)
        assert len(created) == 1
        assert process.stderr is not None
        assert process.stderr.read().endswith("KeyboardInterrupt\n")
        until(lambda: processes_of(created) == [], "no process of it is left")


def test_jobs_of_several_processes_on_one_device_never_overlap(engine):
    with nothing_left(engine), tempfile.TemporaryFile("w+") as log:
        hosts = [
            subprocess.Popen([sys.executable, "-m", "tests.docker.judging", sandbox, "2"], cwd=ROOT, stdout=log)
            for sandbox in ("docker", "docker", "process")
        ]
        assert [host.wait(timeout=60) for host in hosts] == [0, 0, 0]
        log.seek(0)
        said = [line.split() for line in log if line.split()[0].isdecimal()]
    jobs: list[list[str]] = []
    for pid, phase, *_ in said:
        if phase == "reference":
            jobs.append([pid])
        elif phase != "verdict":
            assert pid == jobs[-1][0], "a phase of one process's job came within another's"
            jobs[-1].append(phase)
    assert len(jobs) == 6
    assert len({pid for pid, *_ in jobs}) == 3
    assert len({tuple(phases) for _, *phases in jobs}) == 1


# -- orphans ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def leave(engine, monkeypatch) -> Iterator[Callable[..., Any]]:
    """Makes containers of ours that bear an owner's name. Nobody else's have the label meanwhile."""
    monkeypatch.setattr(docker_module, "LABEL", f"{LABEL}-test")
    made = []

    def leave(owner: str, *, running: bool = True) -> Any:
        container = engine.containers.create(
            IMAGE, ["sleep", "600"], entrypoint=[], labels={docker_module.LABEL: owner}, network_mode="none"
        )
        made.append(container)
        if running:
            container.start()
        return container

    yield leave
    for container in made:
        with contextlib.suppress(docker.errors.NotFound):
            container.remove(force=True)


def exists(container: Any) -> bool:
    try:
        container.reload()
    except docker.errors.NotFound:
        return False
    return True


def dead_owner() -> str:
    """The name of a process that is gone."""
    host, boot, _, started = owner_label().split()
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return f"{host} {boot} {process.pid} {started}"


@pytest.mark.parametrize("running", [True, False])
def test_what_a_dead_process_left_is_removed_at_the_next_start_and_a_living_ones_is_not(running, engine, leave):
    orphan, living = leave(dead_owner(), running=running), leave(owner_label(), running=running)
    with open_sandbox() as sandbox:
        assert run(sandbox) == "PASSED"
        assert not exists(orphan)
        assert exists(living)


def test_remove_orphans_names_what_it_removed_and_spares_the_living_and_other_machines(engine, leave):
    _, *rest = owner_label().split()
    orphan, living, elsewhere = leave(dead_owner()), leave(owner_label()), leave(" ".join(["another-machine", *rest]))
    assert remove_orphans(engine) == [orphan.name]
    assert [exists(container) for container in (orphan, living, elsewhere)] == [False, True, True]


def test_remove_orphans_of_everyone_removes_all(engine, leave):
    left = [leave(dead_owner(), running=False), leave(owner_label()), leave("another-machine boot 1 2"), leave("")]
    assert sorted(remove_orphans(engine, everyone=True)) == sorted(container.name for container in left)
    assert not any(exists(container) for container in left)


# -- recycling --------------------------------------------------------------------------------------------------------


def test_a_container_serves_its_number_of_jobs_and_is_then_replaced(engine, proxy):
    with open_sandbox(recycle_after_jobs=2) as sandbox:
        served = []
        for _ in range(3):
            assert run(sandbox) == "PASSED"
            served.append(*containers_of(engine))
    assert served[0] == served[1] != served[2]


def test_other_limits_take_another_container(engine, proxy):
    with open_sandbox() as sandbox:
        assert run(sandbox) == "PASSED"
        before = containers_of(engine)
        assert run(sandbox, make_job(processes=128)) == "PASSED"
        assert containers_of(engine) != before
        assert only_container(engine).attrs["HostConfig"]["PidsLimit"] == 4 * 128


def test_the_verdict_of_a_job_that_left_the_device_ill_stands_and_the_container_does_not(engine, proxy, monkeypatch):
    healthy = docker_module._code
    ill = healthy().replace(b"== 1024", b"== 1025")
    monkeypatch.setattr(docker_module, "_code", lambda: ill)
    with open_sandbox() as sandbox:
        assert run(sandbox, make_job(WRONG)) == "WRONG_VALUE"
        assert containers_of(engine) == []
        monkeypatch.setattr(docker_module, "_code", healthy)
        assert run(sandbox, make_job(WRONG)) == "WRONG_VALUE"
        assert len(containers_of(engine)) == 1
