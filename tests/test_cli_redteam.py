"""`kbenv redteam` over scripted verdicts: which files it judges, how often, what it says of them, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli import main
from kbenv.cli.redteam import parse_shard
from kbenv.errors import ReferenceFaultError, SandboxError, UsageError
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_verdict

CORPUS = {
    "exploits/a1_wrong.py": 'PROBLEM = "core/level1/relu"\nEXPECT = ["WRONG_VALUE"]\n',
    "exploits/a2_slow.py": 'PROBLEM = "core/level1/relu"\nEXPECT = "no_effect"\n',
    "exploits/a3_twice.py": 'PROBLEM = "core/level1/relu"\nEXPECT = ["RUNTIME_ERROR"]\nRUNS = 2\n',
    "honest/h1_kernel.py": 'PROBLEM = "core/level1/relu"\n',
}
AS_IT_SHOULD = (
    make_verdict(Status.WRONG_VALUE), make_verdict(speedup=0.5), make_verdict(Status.RUNTIME_ERROR),
    make_verdict(Status.RUNTIME_ERROR), make_verdict(speedup=1.0),
)  # fmt: skip


@pytest.fixture
def redteam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command over CORPUS, or `files` of it, with these verdicts in order: (exit code, output, rows)."""

    def run(*options: str, verdicts: tuple[Verdict | Exception, ...], files: dict[str, str] = CORPUS) -> Any:
        for folder in ("exploits", "honest"):
            (tmp_path / folder).mkdir(exist_ok=True)
        for name, source in files.items():
            (tmp_path / name).write_text(source)
        left = list(verdicts)
        monkeypatch.setattr("kbenv.evaluator.Evaluator", lambda **made: InOrder(left, made))
        report = tmp_path / "report.json"
        code = main(["redteam", "--tests", str(tmp_path), "--json", str(report), *options])
        rows = json.loads(report.read_text())["rows"] if report.exists() else []
        return code, capsys.readouterr().out, {row["name"]: row for row in rows}

    return run


class InOrder(ScriptedEvaluator):
    """All evaluators of a command share the verdicts, of which each is given once."""

    def __init__(self, left: list[Verdict | Exception], made: dict[str, Any]) -> None:
        super().__init__(protocol=made["protocol"])
        self.left = left

    def evaluate(self, problem: Any, source: str, *, seeds: Any = None) -> Verdict:
        self.verdicts = [self.left.pop(0)]
        return super().evaluate(problem, source)


def test_what_holds_exits_with_0_and_has_a_line_for_each_file(redteam):
    code, output, rows = redteam(verdicts=AS_IT_SHOULD)
    assert code == 0
    assert {name: (row["outcome"], row["verdicts"]) for name, row in rows.items()} == {
        "a1_wrong": ("ok", 1), "a2_slow": ("ok", 1), "a3_twice": ("ok", 2), "h1_kernel": ("ok", 1),
    }  # fmt: skip
    assert all(name in output for name in rows)
    assert "4 judged on cpu: 0 violations, 0 other than expected, 0 without a verdict, 0 left out" in output


@pytest.mark.parametrize(
    ("files", "verdicts", "said"),
    [
        ("exploits/a1_wrong.py", [make_verdict(speedup=1.0)], "credited with 1x"),
        ("exploits/a2_slow.py", [make_verdict(speedup=0.9)] * 3, "more than its honest work"),
        ("exploits/a3_twice.py", [AS_IT_SHOULD[2], make_verdict(speedup=1.0)], "credited with 1x"),
        ("honest/h1_kernel.py", [make_verdict(Status.WRONG_HIDDEN)], "refused: WRONG_HIDDEN"),
    ],
)
def test_a_violation_exits_with_1(redteam, files, verdicts, said):
    code, output, rows = redteam(verdicts=tuple(verdicts), files={files: CORPUS[files]})
    assert code == 1
    (row,) = rows.values()
    assert (row["outcome"], row["verdicts"]) == ("VIOLATION", len(verdicts))
    assert said in row["said"]
    assert "VIOLATION" in output


def test_a_refusal_by_another_status_is_said_and_is_no_violation(redteam):
    name = "exploits/a1_wrong.py"
    code, output, rows = redteam(verdicts=(make_verdict(Status.RUNTIME_ERROR),), files={name: CORPUS[name]})
    assert code == 0
    assert rows["a1_wrong"]["outcome"] == "other"
    assert "expected WRONG_VALUE" in output
    assert "1 other than expected" in output


def test_what_needs_something_that_is_not_here_is_left_out(redteam):
    files = {"honest/h1_kernel.py": CORPUS["honest/h1_kernel.py"], "honest/h2.py": CORPUS["honest/h1_kernel.py"]}
    files["honest/h2.py"] += 'NEEDS = "no_such_module"\n'
    code, output, rows = redteam(verdicts=AS_IT_SHOULD[4:], files=files)
    assert (code, set(rows)) == (0, {"h1_kernel"})
    assert "1 left out" in output


def test_what_has_no_verdict_exits_with_3_and_the_others_are_judged(redteam):
    code, _, rows = redteam(verdicts=(SandboxError("the machine is gone"), *AS_IT_SHOULD[1:]))
    assert code == 3
    assert [row["outcome"] for row in rows.values()] == ["unjudged", "ok", "ok", "ok"]
    assert rows["a1_wrong"]["said"] == "the machine is gone"


def test_a_problem_is_refused_where_the_file_says_so_for_that_reason_alone(redteam):
    files = {"exploits/a1_constant.py": 'PROBLEM = "core/level1/relu"\nEXPECT = "UNJUDGED"\n'}
    constant = ReferenceFaultError("the reference's output is the same whatever goes in")
    assert redteam(verdicts=(constant,), files=files)[0] == 0
    assert redteam(verdicts=(ReferenceFaultError("the reference failed"),), files=files)[0] == 3
    assert redteam(verdicts=(make_verdict(speedup=1.0),), files=files)[0] == 1


def test_only_and_shard_choose_files(redteam):
    assert set(redteam("--only", "a2", "--only", "H1", verdicts=AS_IT_SHOULD[1:2] + AS_IT_SHOULD[4:])[2]) == {
        "a2_slow", "h1_kernel",
    }  # fmt: skip
    assert set(redteam("--shard", "2/2", verdicts=AS_IT_SHOULD[1:2] + AS_IT_SHOULD[4:])[2]) == {"a2_slow", "h1_kernel"}
    assert redteam("--only", "zz", verdicts=())[0] == 2
    assert redteam("--repeats", "0", verdicts=())[0] == 2


def test_an_honest_file_is_judged_as_often_as_asked(redteam):
    name = "honest/h1_kernel.py"
    assert redteam("--repeats", "3", verdicts=AS_IT_SHOULD[4:] * 3, files={name: CORPUS[name]})[0] == 0
    verdicts = (AS_IT_SHOULD[4], make_verdict(Status.WRONG_VALUE))
    code, _, rows = redteam("--repeats", "3", verdicts=verdicts, files={name: CORPUS[name]})
    assert (code, rows["h1_kernel"]["verdicts"]) == (1, 2)


def test_a_custom_kernel_is_asked_for_by_the_option_and_by_files_that_say_so(redteam, monkeypatch):
    asked: list[bool] = []
    plain = InOrder.evaluate

    def evaluate(self: InOrder, *arguments: Any, **more: Any) -> Verdict:
        asked.append(self.protocol.require_custom_kernel)
        return plain(self, *arguments, **more)

    monkeypatch.setattr(InOrder, "evaluate", evaluate)
    files = {
        "exploits/a1_wrong.py": CORPUS["exploits/a1_wrong.py"],
        "exploits/f1_own.py": CORPUS["exploits/a1_wrong.py"] + 'PROTOCOL = {"require_custom_kernel": True}\n',
    }
    assert redteam(verdicts=AS_IT_SHOULD[:1] * 2, files=files)[0] == 0
    assert redteam("--require-custom-kernel", verdicts=AS_IT_SHOULD[:1] * 2, files=files)[0] == 0
    assert asked == [False, True, True, True]


@pytest.mark.parametrize(("text", "parsed"), [(None, (0, 1)), ("1/1", (0, 1)), ("2/8", (1, 8))])
def test_a_shard_is_every_nth_file_from_the_kth(text, parsed):
    assert parse_shard(text) == parsed


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/", "a/b", "-1/2"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(UsageError, match="K/N"):
        parse_shard(text)
