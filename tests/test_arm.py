"""Whether what was stopped stood still: told by what the kernel counts, and never by what a runner says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kbenv.sandbox.judge import arm
from kbenv.sandbox.judge.arm import Arm, ArmError
from kbenv.sandbox.judge.proc import arrivals

SLEEPER = "import time\nprint(flush=True)\nwhile True: time.sleep(0.001)"


class Process(Arm):
    """The stopping and continuing of an arm, over any process."""

    def __init__(self, pid: int) -> None:
        self.role = "submission"
        self._process = pid
        self._paused = set()
        self._ran_ns = self._busy_turns = 0

    @property
    def pid(self) -> int:
        return self._process

    def _pids(self) -> list[int]:
        return [self._process]


@pytest.fixture
def process() -> Iterator[Process]:
    """Comes onto a processor every millisecond, and is stopped."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        try:
            process = Process(sleeper.pid)
            process.pause()
            process.settle()
            if not any(arrivals({sleeper.pid}).values()):
                pytest.skip("this kernel does not count how often a thread comes onto a processor")
            yield process
        finally:
            sleeper.kill()


def continue_for_a_moment(process: Process) -> None:
    before = arrivals({process.pid})
    os.kill(process.pid, signal.SIGCONT)
    while arrivals({process.pid}) == before:
        time.sleep(1e-4)
    os.kill(process.pid, signal.SIGSTOP)
    while process._runs():
        time.sleep(1e-4)


def test_what_stands_still_is_not_at_fault(process):
    process.expect_still()
    process.expect_still(patient=False)


def test_who_was_continued_for_a_moment_is_at_fault_at_once(process, monkeypatch):
    monkeypatch.setattr(arm, "_STILL_NS", 10**12)
    continue_for_a_moment(process)
    with pytest.raises(ArmError, match="ran while it was stopped"):
        process.expect_still()


def test_who_was_continued_while_the_judge_waited_for_the_accounting_is_at_fault(process):
    continue_for_a_moment(process)
    process.settle()
    with pytest.raises(ArmError, match="ran while it was stopped"):
        process.expect_still()


def test_who_runs_is_at_fault(process, monkeypatch):
    monkeypatch.setattr(arm, "arrivals", lambda pids: process._arrivals)
    monkeypatch.setattr(process, "_runs", lambda: True)
    with pytest.raises(ArmError, match="ran while it was stopped"):
        process.expect_still()


def test_after_it_was_continued_on_purpose_it_may_be_stopped_again(process):
    process.resume()
    process.pause()
    process.settle()
    process.expect_still()


def test_time_charged_without_running_is_forgiven_once_and_never_to_a_blank_runner(process, monkeypatch):
    charged = process._ran_ns + 900_000
    monkeypatch.setattr(arm, "processor_ns", lambda pids: charged)
    with pytest.raises(ArmError, match=r"0\.9 ms while it was stopped"):
        process.expect_still(patient=False)
    process._busy_turns = 0
    process.expect_still()
    with pytest.raises(ArmError, match=r"0\.9 ms while it was stopped"):
        process.expect_still()


def test_more_than_a_millisecond_is_not_forgiven(process, monkeypatch):
    charged = process._ran_ns + 1_100_000
    monkeypatch.setattr(arm, "processor_ns", lambda pids: charged)
    with pytest.raises(ArmError, match=r"1\.1 ms while it was stopped"):
        process.expect_still()
