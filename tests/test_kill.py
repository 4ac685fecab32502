"""A run that is killed with SIGKILL, at any moment and however often, ends with the files of one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

ROOT = Path(__file__).parent.parent
AGENTS = ("single-shot", "multi-turn", "search", "reflect", "skills")
KILLS = 12


def start(out: Path, pause_s: float, agents: Sequence[str] = AGENTS) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kill_run", str(out), str(pause_s), *agents]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said.splitlines()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_byte_and_asks_and_judges_nothing_twice(tmp_path: Path) -> None:
    finish(start(tmp_path / "whole", 0.0))
    # One process judges a source once, whichever agents give it; one that goes on does not know the others' verdicts.
    apart = [line for agent in AGENTS for line in finish(start(tmp_path / f"whole-{agent}", 0.0, (agent,)))]
    draw = random.Random(8)
    said: list[str] = []
    for _ in range(KILLS):
        with start(tmp_path / "killed", 0.004) as process:
            assert process.stderr is not None
            # In the middle: after some answers and verdicts, and at any point of what follows them.
            said += [line.strip() for line in islice(process.stderr, draw.randint(1, 20))]
            time.sleep(draw.uniform(0.0, 0.02))
            process.send_signal(signal.SIGKILL)
            said += process.stderr.read().splitlines()
        assert process.returncode == -signal.SIGKILL
    said += finish(start(tmp_path / "killed", 0.0))
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    # What was in flight when the process died is asked or judged again, and nothing else.
    for word in ("ASKED", "JUDGED"):
        made, needed = [[line for line in lines if line.startswith(word)] for lines in (said, apart)]
        assert set(made) == set(needed)
        assert len(made) - len(needed) <= KILLS * 2
