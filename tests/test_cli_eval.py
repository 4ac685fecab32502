"""`kbenv eval`: exit codes, what it prints where, and that bad usage is one line before anything runs."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import kbenv.evaluator
from kbenv.cli import main
from kbenv.cli.eval import MAX_SOURCE_BYTES, add_parser, describe, read_text
from kbenv.diagnosis import read_diagnosis
from kbenv.errors import SandboxError, UsageError
from kbenv.protocol import get_protocol
from kbenv.sandbox.docker import DockerSettings
from kbenv.verdict import Diagnosis, KernelShare, Provenance, ScreenFinding, Status, Verdict
from tests.fakes import SUBMISSION_SOURCE, ScriptedEvaluator, make_plausibility, make_verdict
from tests.test_diagnosis import MEMCHECK
from tests.test_machine_code import ROWS
from tests.test_profile import RAW

RELU = "core/level1/relu"


class Judge:
    """Stands in for `kbenv.evaluator.Evaluator`: records the options, returns the verdict (or raises) it is given."""

    def __init__(self) -> None:
        self.outcome: Verdict | Exception = make_verdict()
        self.options: dict[str, Any] = {}
        self.evaluator: ScriptedEvaluator | None = None

    def __call__(self, **options: Any) -> ScriptedEvaluator:
        self.options = options
        protocol = options["protocol"]
        if isinstance(protocol, str):
            protocol = get_protocol(protocol, options["precision"])
        self.evaluator = ScriptedEvaluator([self.outcome], protocol=protocol, on_phase=options["on_phase"])
        return self.evaluator


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    stand_in = Judge()
    monkeypatch.setattr(kbenv.evaluator, "Evaluator", stand_in)
    return stand_in


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "submission.py"
    path.write_text(SUBMISSION_SOURCE, encoding="utf-8")
    return path


def printed(verdict: Verdict, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(describe(verdict))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", list(Status))
def test_the_exit_code_is_0_when_credited_and_1_when_not(judge: Judge, source: Path, status: Status) -> None:
    judge.outcome = make_verdict(status)
    assert main(["eval", RELU, str(source)]) == (0 if status is Status.PASSED else 1)
    assert judge.evaluator is not None
    assert judge.evaluator.sources == [SUBMISSION_SOURCE]
    assert judge.evaluator.closed


def test_a_fault_of_the_machine_is_exit_code_3(judge: Judge, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge.outcome = SandboxError("no device")
    assert main(["eval", RELU, str(source)]) == 3
    assert capsys.readouterr() == ("", "kbenv: no device\n")


def test_every_option_reaches_the_evaluator(judge: Judge, source: Path) -> None:
    options = {"protocol": "kernelbench", "sandbox": "process", "device": "cpu", "precision": "bf16", "backend": "cpp"}
    options["effort"] = "quick"
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    more = [
        "--allow-same-uid",
        "--image",
        "mine",
        "--runtime",
        "runsc",
        "--gpu-access",
        "cdi",
        "--cpus",
        "1.5",
        "--mount",
        "/a",
        "--mount",
        "/b",
    ]
    main(["eval", RELU, str(source), *arguments, "--no-require-custom-kernel", *more])
    judge.options.pop("on_phase")
    docker = DockerSettings(image="mine", runtime="runsc", gpu_access="cdi", cpus=1.5, mounts=("/a", "/b"))
    assert judge.options == options | {
        "require_custom_kernel": False, "docker": docker, "compiled_baseline": False, "diagnostics": (),
        "allow_same_uid": True,
    }  # fmt: skip


def test_a_diagnosis_is_asked_for_by_name(judge: Judge, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", RELU, str(source), "--diagnose", "access, code"])
    assert judge.options["diagnostics"] == ("code", "access")
    assert main(["eval", RELU, str(source), "--diagnose", "word"]) == 2
    assert "--diagnose must be of kernels, code, counters, access; found 'word'" in capsys.readouterr().err


def test_a_diagnosis_is_shown_with_what_it_lacks() -> None:
    told = {"code": ROWS, "counters": RAW, "access": MEMCHECK, "missing": {}}
    text = printed(make_verdict(diagnosis=read_diagnosis(told)), width=300)
    assert "matmul (sm_90): 168 registers, 64 B stack" in text
    assert "matmul(const float *, const float *, float *, int) (counters, self-reported): limit arithmetic" in text
    assert "at scale(const float *, float *, int)+0x90 in kernel.cu:7" in text
    assert "no code: not here" in printed(make_verdict(diagnosis=Diagnosis(missing={"code": "not here"})))


def test_defaults(judge: Judge, source: Path) -> None:
    main(["eval", RELU, str(source)])
    assert judge.options.pop("on_phase") is not None
    assert judge.options == {
        "protocol": "hardened",
        "precision": "fp32",
        "effort": "full",
        "device": "auto",
        "sandbox": "auto",
        "backend": "auto",
        "require_custom_kernel": None,
        "docker": DockerSettings(),
        "compiled_baseline": False,
        "diagnostics": (),
        "allow_same_uid": False,
    }


SEEDS = {
    "construction": 1, "redraw": 2, "standard": [3], "hidden": [4], "probes": [5], "transform": 6, "timed_base": 7,
}  # fmt: skip


def test_a_verdict_is_replayed_under_its_own_protocol_and_seeds(judge: Judge, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    protocol = get_protocol("hardened", "bf16", require_custom_kernel=False)
    path.write_text(make_verdict(seeds=SEEDS, protocol=protocol).model_dump_json(), encoding="utf-8")
    main(["eval", RELU, str(source), "--replay", str(path), "--require-custom-kernel"])
    assert judge.options["protocol"] == protocol
    assert judge.options["require_custom_kernel"] is None
    assert judge.evaluator is not None
    assert judge.evaluator.seeds == [SEEDS]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "is none: problem: Field required (and 4 more)"),
        ("no json", "is none: Invalid JSON"),
        (make_verdict(problem="core/level1/softmax", seeds=SEEDS).model_dump_json(), "a verdict on core/level1/relu"),
        (make_verdict(seeds={"construction": 42}).model_dump_json(), "does not record every seed (hidden, probes,"),
    ],
)
def test_what_cannot_be_replayed_is_bad_usage(
    judge: Judge, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(text, encoding="utf-8")
    assert main(["eval", RELU, str(source), "--replay", str(path)]) == 2
    assert words in capsys.readouterr().err
    assert main(["eval", RELU, str(source), "--replay", str(tmp_path / "none.json")]) == 2
    assert judge.evaluator is None


def test_problems_dir_reaches_the_loader(judge: Judge, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    reference = "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    (folder / "7_Thing.py").write_text(reference, encoding="utf-8")
    assert main(["eval", "kernelbench/level1/7", str(source), "--problems-dir", str(tmp_path)]) == 0
    assert judge.evaluator is not None
    assert getattr(judge.evaluator.problems[0], "source", None) == reference


def test_a_models_answer_in_markdown_is_unwrapped(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "answer.md"
    path.write_text(f"Here:\n\n```python\n{SUBMISSION_SOURCE}```\n", encoding="utf-8")
    assert main(["eval", RELU, str(path)]) == 0
    assert judge.evaluator is not None
    assert judge.evaluator.sources == [SUBMISSION_SOURCE]


def test_an_answer_without_code_is_a_format_error(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "answer.md"
    path.write_text("I cannot.\n", encoding="utf-8")
    assert main(["eval", RELU, str(path)]) == 1
    assert judge.evaluator is not None
    assert judge.evaluator.sources == []
    assert len(judge.evaluator.format_errors) == 1


def test_json_on_standard_output_stands_there_alone(
    judge: Judge, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.outcome = make_verdict(Status.COMPILE_ERROR)
    assert main(["eval", RELU, str(source), "--json", "-"]) == 1
    out, err = capsys.readouterr()
    assert Verdict.model_validate_json(out) == judge.outcome
    assert json.loads(out)["credited"] is False
    assert "COMPILE_ERROR" in err


def test_json_in_a_file(judge: Judge, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdict.json"
    path.write_text("old and much longer than nothing", encoding="utf-8")
    assert main(["eval", RELU, str(source), "--json", str(path)]) == 0
    assert Verdict.model_validate_json(path.read_text(encoding="utf-8")) == judge.outcome
    out, err = capsys.readouterr()
    assert "PASSED" in out
    assert err == ""


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    contents = {
        "empty": (b"", "is empty"),
        "blank": (b" \n\t\n", "is empty"),
        "binary": (b"\x7fELF\x00\xff\xfe", "not"),
        "nulls": (b"import torch\0", "null bytes"),
        "latin": ("# é\n".encode("latin-1"), "UTF-8"),
        "large": (b"#" * 5_000_000, "smaller than 5 MB"),
    }
    for name, (data, _) in contents.items():
        (folder / f"{name}.py").write_bytes(data)
    files = {name: (folder / f"{name}.py", message) for name, (_, message) in contents.items()}
    return files | {
        "missing": (folder / "missing.py", "there is no"),
        "directory": (folder, "is a directory"),
        "device": (Path("/dev/null"), "regular file"),
        "null name": (Path("a\0b"), "null"),
        "long name": (Path("a" * 5000), "cannot read"),
        "below a file": (folder / "empty.py" / "x.py", "cannot read"),
    }


BAD_FILES = [
    "empty", "blank", "binary", "nulls", "latin", "large", "missing", "directory", "device", "null name", "long name",
    "below a file",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_exit_code_2_and_one_line(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, message = bad_files(tmp_path)[name]
    assert main(["eval", RELU, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert judge.evaluator is None


def test_a_source_may_have_a_byte_order_mark_and_be_almost_5_mb(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbf" + b"#" * (MAX_SOURCE_BYTES - 4))
    assert read_text(path) == "#" * (MAX_SOURCE_BYTES - 4)


def test_an_unknown_problem_is_exit_code_2(judge: Judge, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "core/level1/nothing", str(source)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert judge.evaluator is None


def test_json_that_cannot_be_written_is_refused_before_judging(
    judge: Judge, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path, tmp_path / "missing" / "verdict.json", source / "x.json", source):
        assert main(["eval", RELU, str(source), "--json", str(path)]) == 2
        assert capsys.readouterr().err.startswith("kbenv: --json must")
    assert judge.evaluator is None
    assert source.read_text(encoding="utf-8") == SUBMISSION_SOURCE


@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf"])
def test_a_number_of_processors_that_makes_no_sense_is_bad_usage(
    judge: Judge, source: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["eval", RELU, str(source), "--cpus", number])
    assert caught.value.code == 2
    assert f"--cpus: must be above 0; found {number}" in capsys.readouterr().err


def test_a_fault_leaves_no_json_behind(judge: Judge, source: Path, tmp_path: Path) -> None:
    judge.outcome = SandboxError("no device")
    assert main(["eval", RELU, str(source), "--json", str(tmp_path / "verdict.json")]) == 3
    assert not (tmp_path / "verdict.json").exists()


def test_a_passed_verdict_is_told_with_all_its_parts() -> None:
    text = printed(make_verdict(flags=("output aliases an input",)))
    for part in (
        "PASSED",
        RELU,
        "2x [1.9, 2.1]",
        "1 ms; reference 2 ms",
        "judge-open",
        "1 MiB; reference 1 MiB; ratio 1",
        "full (process)",
        "standard-0",
        "hidden-D4",
        "output aliases an input",
        "build 1.50",
    ):
        assert part in text


def test_a_failure_is_told_with_its_cause() -> None:
    text = printed(make_verdict(Status.COMPILE_ERROR, message="g++ failed", output="hello"))
    assert "g++ failed" in text
    assert "| kernel.cpp:7:5: error: expected ‘;’ before ‘return’" in text
    assert "| hello" in text


def test_a_comparison_is_told_on_one_line() -> None:
    line = "wrong  standard-1  31 of 8192 wrong, error 0.5, relative 1.25, output 0 [3, 17]: expected 0, found -0.5"
    assert line in printed(make_verdict(Status.WRONG_VALUE), width=120)


@pytest.mark.parametrize("status", list(Status))
def test_it_is_readable_at_60_columns(status: Status) -> None:
    assert all(len(line) <= 60 for line in printed(make_verdict(status), width=60).splitlines())


def test_terminal_escapes_and_markup_stay_text() -> None:
    verdict = make_verdict(
        Status.RUNTIME_ERROR,
        message="[bold]\x1b[2Jgone\nPASSED",
        detail="\x1b]0;title\x07[red]x[/red]",
        flags=("\x1b[31mflag",),
    )
    text = printed(verdict)
    assert "\x1b" not in text
    assert "[red]x[/red]" in text
    assert "\nPASSED" not in text


def test_bad_usage_is_raised_for_the_caller_to_tell(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["eval", RELU, str(tmp_path / "missing.py")])
    with pytest.raises(UsageError, match="there is no"):
        arguments.func(arguments)


def test_the_screen_is_printed_on_request_only_and_decides_nothing(
    judge: Judge, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = ScreenFinding(rule="clock", line=3, column=4, end_line=3, end_column=9, text="a\x1b[2Jclock")
    judge.outcome = make_verdict(screen=(finding,))
    assert main(["eval", RELU, str(source)]) == 0
    assert "3:5" not in capsys.readouterr().out
    assert main(["eval", RELU, str(source), "--screen"]) == 0
    assert "3:5 clock: a [2Jclock" in capsys.readouterr().out
    judge.outcome = make_verdict()
    assert main(["eval", RELU, str(source), "--screen"]) == 0
    assert "nothing" in capsys.readouterr().out


def test_provenance_and_floor_are_printed() -> None:
    kernel = KernelShare(name="nvjet", share=0.9, count=3, kind="library")
    provenance = Provenance(custom_share=0.07, kernels=(kernel,), library_calls={"cuBLAS": 0.9}, method="device time")
    text = printed(make_verdict(provenance=provenance, plausibility=make_plausibility(0.125)))
    assert "7.0% of the time, self-reported; libraries: cuBLAS 90.0%" in text
    assert "0.125 ms" in text


def test_profile_shows_the_judges_phases_as_bars_instead_of_a_line(judge, source, capsys):
    judge.outcome = make_verdict(seconds={"reference": 0.5, "timing": 2.0})
    assert main(["eval", RELU, str(source)]) == 0
    assert "reference 0.50, timing 2.00" in capsys.readouterr().out
    assert main(["eval", RELU, str(source), "--profile"]) == 0
    shown = capsys.readouterr().out
    assert "reference 0.50, timing 2.00" not in shown
    assert "2.00 s  80%" in shown
    assert "2.50 s 100%" in shown


def test_the_effort_is_the_evaluators_to_know_and_shown(judge, source, capsys):
    assert main(["eval", RELU, str(source), "--effort", "quick"]) == 0
    assert judge.options["effort"] == "quick"
    quick = get_protocol("verified").with_effort("quick")
    assert "verified, fp32, quick" in printed(make_verdict(protocol=quick))
    assert "quick" not in printed(make_verdict())
