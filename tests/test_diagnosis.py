"""What NVIDIA's tools said is read as they print it; what they did not say has a reason; nothing of it is hidden."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from kbenv.diagnosis import first_bad_access, read_diagnosis
from kbenv.errors import UsageError
from kbenv.evaluator import Evaluator
from kbenv.feedback import QUOTE_PREFIX, render_feedback
from kbenv.sandbox.runner.tool import NCU, SANITIZER, Tools, read_answer
from kbenv.verdict import HIDDEN_STAGES, Diagnosis, Stage, Status
from kbenv.workbench import trial_protocol
from tests.fakes import make_verdict
from tests.test_profile import RAW

MEMCHECK = """\
========= COMPUTE-SANITIZER
Using extensions below /tmp
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, int)+0x90 in kernel.cu:7
=========     by thread (32,0,0) in block (1,0,0)
=========     Access to 0x7f3b1a000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3b1a000000 of size 1024 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, int)+0x90 in kernel.cu:7
=========     by thread (33,0,0) in block (1,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========
========= Target application returned an error
========= ERROR SUMMARY: 33 errors
"""
API_ERROR = """\
========= COMPUTE-SANITIZER
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaMemcpy.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 1 error
"""
PROBLEM = "import torch\n\n\ndef get_inputs():\n    return [torch.ones(4)]\n\n\ndef get_init_inputs():\n    return []\n"
SUBMISSION = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"


def test_the_first_bad_access_is_told_and_no_other() -> None:
    assert first_bad_access(MEMCHECK) == (
        "Invalid __global__ write of size 4 bytes\n"
        "at scale(const float *, float *, int)+0x90 in kernel.cu:7\n"
        "by thread (32,0,0) in block (1,0,0)\n"
        "Access to 0x7f3b1a000400 is out of bounds\n"
        "and is 1 bytes after the nearest allocation at 0x7f3b1a000000 of size 1024 bytes"
    )


@pytest.mark.parametrize(
    "text", ["", API_ERROR, "Invalid __global__ write of size 4 bytes\n", "\x00\n=====", "x" * 9999]
)
def test_where_it_reports_no_bad_access_there_is_none(text: str) -> None:
    assert first_bad_access(text) is None
    found = read_diagnosis({"access": text, "missing": {}})
    assert found.access is None
    assert found.missing == {"access": "compute-sanitizer saw no bad access in a run of its own"}


def test_a_report_without_end_is_bounded() -> None:
    told = first_bad_access("========= Invalid read\n" + ("========= " + "a" * 5000 + "\x1b[31m\n") * 50)
    assert told is not None
    assert len(told.splitlines()) == 6
    assert max(map(len, told.splitlines())) <= 200
    assert "\x1b" not in told


def test_a_reason_that_the_judge_gave_stands() -> None:
    told = {"access": "", "counters": "", "missing": {"access": "not found", "counters": "no time"}}
    assert read_diagnosis(told).missing == {"access": "not found", "counters": "no time"}


def test_launches_are_kept_in_the_verdict_and_come_back_from_its_json() -> None:
    made = make_verdict(diagnosis=read_diagnosis({"counters": RAW, "missing": {}}))
    again = type(made).model_validate_json(made.model_dump_json())
    assert again.diagnosis == made.diagnosis
    assert again.diagnosis is not None
    assert [launch.values["compute"] for launch in again.diagnosis.counters] == [91.5, 10.0]


def test_counters_that_are_refused_have_ncus_own_words() -> None:
    refused = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"
    assert "ERR_NVGPUCTRPERM" in read_diagnosis({"counters": refused, "missing": {}}).missing["counters"]


# -- what the agent reads ---------------------------------------------------------------------------------------------

BAD_ACCESS = Diagnosis(access=first_bad_access(MEMCHECK))


def test_an_agent_reads_where_its_first_bad_access_is() -> None:
    text = render_feedback(make_verdict(Status.ILLEGAL_ACCESS, diagnosis=BAD_ACCESS))
    assert f"{QUOTE_PREFIX}at scale(const float *, float *, int)+0x90 in kernel.cu:7\n" in text
    without = render_feedback(make_verdict(Status.ILLEGAL_ACCESS, diagnosis=Diagnosis(missing={"access": "not here"})))
    assert f"not known (quoted):\n{QUOTE_PREFIX}not here\n" in without
    assert "bad access" not in render_feedback(make_verdict(Status.ILLEGAL_ACCESS))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.ILLEGAL_ACCESS])
def test_of_any_other_failure_it_reads_nothing_of_it(status: Status) -> None:
    assert render_feedback(make_verdict(status, diagnosis=BAD_ACCESS)) == render_feedback(make_verdict(status))


@pytest.mark.parametrize("stage", sorted(HIDDEN_STAGES))
def test_of_a_hidden_bad_access_it_reads_nothing(stage: Stage) -> None:
    hidden = make_verdict(Status.ILLEGAL_ACCESS, stage=stage, diagnosis=BAD_ACCESS)
    assert render_feedback(hidden) == "WRONG_HIDDEN: a hidden check failed"


# -- how it is asked for ----------------------------------------------------------------------------------------------


def test_diagnostics_are_a_part_of_the_protocol_in_a_fixed_order() -> None:
    with Evaluator(device="cpu", sandbox="process", diagnostics=("access", "code")) as evaluator:
        assert evaluator.protocol.diagnostics == ("code", "access")
        assert trial_protocol(evaluator.protocol).diagnostics == ("kernels", "code", "access")
    with Evaluator(device="cpu", sandbox="process") as evaluator:
        assert evaluator.protocol.diagnostics == ()
        assert trial_protocol(evaluator.protocol).diagnostics == ("kernels", "code")
    with pytest.raises(UsageError, match="kernels, code, counters, access"):
        Evaluator(device="cpu", sandbox="process", diagnostics=("words",))  # type: ignore[arg-type]


# -- the tool's process -----------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs on the path, in which a test may write; the working directory is another."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path / "scratch")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write_tool(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\nimport os, sys, time\n{text}")
    (folder / name).chmod(0o755)


def run_under(
    tool: str, *, body: str = "return x", limit_s: float = 100.0, **environment: str
) -> tuple[str, str | None]:
    specification = {
        "problem": PROBLEM, "source": SUBMISSION.format(body=body), "seed": 0, "construction_seed": 0, "threads": 1,
        "precision": "fp32", "tf32": {"matmul": True, "conv": True, "rnn": True}, "device": "cpu", "profiled": False,
    }  # fmt: skip
    wanted = {"tool": tool, "options": ["--a", "b"], "environment": environment, "limit_s": limit_s}
    answer = read_answer(Tools().do_run_under({**wanted, "specification": specification}, []))
    assert answer is not None
    return answer


def test_the_submission_runs_once_below_the_tool(tools: Path) -> None:
    write_tool(tools, SANITIZER, "print('tool', *sys.argv[1:3], flush=True)\nos.execv(sys.argv[3], sys.argv[3:])\n")
    text, reason = run_under(
        SANITIZER, body="print('forward', x.sum().item(), __import__('os').environ['A']); return x", A="1"
    )
    assert reason is None
    assert text == "tool --a b\nforward 4.0 1\n"


def test_a_submission_that_fails_below_the_tool_says_why(tools: Path) -> None:
    write_tool(tools, SANITIZER, "os.execv(sys.argv[3], sys.argv[3:])\n")
    text, reason = run_under(SANITIZER, body="raise ValueError('of its own')")
    assert reason is None
    assert "ValueError: of its own" in text


def test_a_tool_that_hangs_is_left_alone(tools: Path) -> None:
    write_tool(tools, NCU, "print('begun', flush=True)\ntime.sleep(60)\n")
    text, reason = run_under(NCU, limit_s=1.0)
    assert text in ("begun\n", "")
    assert reason == "ncu took longer than 1 s"


def test_a_tool_that_is_not_there_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("kbenv.sandbox.runner.tool._PLACES", {})
    assert run_under(NCU) == ("", "ncu was not found; it comes with the CUDA toolkit")


def test_a_tool_that_cannot_be_run_is_no_fault_of_ours(tools: Path) -> None:
    (tools / NCU).write_text("no program")
    (tools / NCU).chmod(stat.S_IRWXU)
    _, reason = run_under(NCU)
    assert reason is not None
    assert reason.startswith(f"{tools / NCU} could not be run")


@pytest.mark.parametrize("answer", [None, {}, {"text": 1, "reason": None}, {"text": "", "reason": 2}, []])
def test_an_answer_of_another_form_is_not_read(answer: object) -> None:
    assert read_answer(answer) is None
