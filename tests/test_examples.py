"""The examples run as they are shipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
def test_the_example_credits_the_kernel_and_not_the_cheat(tmp_path):
    script = EXAMPLES / "two_answers.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "cheat: WRONG_VALUE" in done.stdout
    assert "kernel: PASSED" in done.stdout
    assert list(tmp_path.iterdir()) == []
