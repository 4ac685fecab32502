"""A process that sleeps is idle, one that computes or whose children do is not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kbenv.sandbox.judge import idle
from kbenv.sandbox.judge.idle import Idleness
from kbenv.sandbox.judge.proc import descendants

SLEEPS = "import time; time.sleep(60)"
COMPUTES = "while True: pass"
BY_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPUTES!r}])"


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", request.param]) as started:
        time.sleep(0.5)  # Python has started, which is work
        yield started
        for pid in reversed(descendants(started.pid)):
            subprocess.run(["kill", "-9", str(pid)], check=False)


def last(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether it was idle for so long, once in three times that."""
    idleness, ending = Idleness(lambda: descendants(process.pid), limit_s), time.monotonic() + 3 * limit_s
    while time.monotonic() < ending:
        if idleness.lasts():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("process", [SLEEPS], indirect=True)
def test_who_sleeps_is_idle(process: subprocess.Popen[bytes]) -> None:
    assert last(process, 0.5)


@pytest.mark.parametrize("process", [COMPUTES, BY_A_CHILD], indirect=True, ids=["itself", "a child"])
def test_who_computes_is_not(process: subprocess.Popen[bytes]) -> None:
    assert not last(process, 0.5)


@pytest.mark.parametrize("process", [SLEEPS], indirect=True)
def test_where_time_is_not_counted_nobody_is_idle(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "processor_ns", lambda _: 0)
    assert not last(process, 0.1)
