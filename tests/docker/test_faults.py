"""Faults of the machine, injected for real: one costs a try, one in every try is an exception, none leaves anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import docker
import pytest

import kbenv.sandbox.docker as docker_module
import kbenv.sandbox.host as host_module
from kbenv.errors import SandboxError
from kbenv.evaluator import CPU_THREADS, Evaluator
from kbenv.problems import load_problem
from kbenv.protocol import Protocol
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
_SIGNAL_JUDGE = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        if b"boot.py\\0judge" in file.read() and int(pid) != os.getpid():
            parent = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
            if parent == "1": os.kill(int(pid), int(sys.argv[1]))
"""
_SLOW = HONEST.replace("        return", "        while True: pass\n        return")


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = connect()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else's files are counted, nor anybody else's jobs waited for."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProxy]:
    """The connection to the engine that an `Evaluator` gets."""
    with EngineProxy() as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        yield proxy


class Mischief:
    """An evaluator's `on_phase`: does something in the middle of a job, `times` times."""

    def __init__(self, do: Callable[[], None], times: int) -> None:
        self.phases: list[str] = []
        self._do = do
        self._times = times

    def __call__(self, phase: str) -> None:
        self.phases.append(phase)
        if phase == MID_JOB and self._times > 0:
            self._times -= 1
            self._do()

    @property
    def tries(self) -> int:
        return self.phases.count("reference")


def only_container(engine: docker.DockerClient) -> Any:
    (container,) = containers_of(engine)
    return engine.containers.get(container)


def signal_judge(container: Any, number: int) -> None:
    code, output = container.exec_run(["python3", "-I", "-c", _SIGNAL_JUDGE, str(number)])
    assert code in (0, 137), output


FAULTS: dict[str, Callable[[docker.DockerClient, EngineProxy], None]] = {
    "container-killed": lambda engine, proxy: only_container(engine).kill(),
    "container-removed": lambda engine, proxy: only_container(engine).remove(force=True),
    "judge-killed": lambda engine, proxy: signal_judge(only_container(engine), signal.SIGKILL),
    "connection-cut": lambda engine, proxy: proxy.cut(),
}


def evaluator_with(on_phase: Callable[[str], None] | None = None, **limits: Any) -> Evaluator:
    return Evaluator(protocol=quick_protocol(**limits), device="cpu", sandbox="docker", on_phase=on_phase)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_in_the_middle_of_a_job_costs_a_try_and_no_verdict(fault, engine, monkeypatch):
    began = time.time()
    with nothing_left(engine), EngineProxy() as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        mischief = Mischief(lambda: FAULTS[fault](engine, proxy), times=1)
        with evaluator_with(mischief) as evaluator:
            verdict = evaluator.evaluate(RELU, HONEST)
    assert verdict.credited, verdict.message
    assert mischief.tries == 2
    assert len(created_since(engine, began)) == 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_every_try_is_an_error_and_the_next_job_is_judged(fault, engine, monkeypatch):
    began = time.time()
    with nothing_left(engine), EngineProxy() as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        mischief = Mischief(lambda: FAULTS[fault](engine, proxy), times=2)
        with evaluator_with(mischief) as evaluator:
            with pytest.raises(SandboxError, match="the judge was lost"):
                evaluator.evaluate(RELU, HONEST)
            assert mischief.tries == 2
            assert containers_of(engine) == []
            assert locks_are_free()
            assert evaluator.evaluate(RELU, HONEST).credited
    assert len(created_since(engine, began)) == 3
