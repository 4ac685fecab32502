"""The examples run as they are shipped."""

from __future__ import annotations

import importlib.util
import re
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


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    script = [sys.executable, "-W", "ignore", str(EXAMPLES / name), *arguments]
    done = subprocess.run(script, cwd=cwd, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.corpus  # a dozen verdicts
@pytest.mark.corpus_1
@pytest.mark.slow
def test_five_kernels_have_five_outcomes_and_a_summary(tmp_path):
    said = run_example("five_kernels.py", cwd=tmp_path)
    outcomes = dict(line.split(": ", 1) for line in said.splitlines()[:5])
    assert outcomes["identity"].startswith("WRONG_VALUE")
    assert outcomes["typo"].startswith("COMPILE_ERROR")
    assert outcomes["c_scalar"].startswith("PASSED")
    assert outcomes["operators"].startswith("NO_CUSTOM_KERNEL")
    assert "pass@1 0.40" in said


@pytest.mark.corpus  # a dozen verdicts
@pytest.mark.corpus_3
@pytest.mark.slow
def test_the_refinement_ends_with_a_credited_kernel(tmp_path):
    said = run_example("refine.py", cwd=tmp_path)
    assert re.search(r"^best: \d+\.\d\dx$", said, re.MULTILINE), said
    assert "class ModelNew" in said


@pytest.mark.corpus  # dozens of verdicts
@pytest.mark.corpus_2
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs the extra `trl`")
def test_grpo_learns_what_the_judge_credits(tmp_path):
    said = run_example("grpo_trl.py", "--steps", "30", "--curve", "curve.svg", cwd=tmp_path)
    first, last = (float(number) for number in re.findall(r"(\d\.\d{3}) in the", said))
    assert last > first + 0.1, said
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
