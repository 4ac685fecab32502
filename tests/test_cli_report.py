"""`kbenv report` from a run's files to its tables and its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbenv.baseline import Baseline, Variant
from kbenv.category import categorise
from kbenv.cli import main
from kbenv.cli.report import read_report
from kbenv.problems import list_problems, load_problem
from kbenv.problems.loaders import core
from kbenv.store import Store, StoredTurn
from kbenv.verdict import Status, Verdict
from tests.fakes import make_verdict

RELU, SOFTMAX, BLOCK = "core/level1/relu", "core/level1/softmax", "core/level3/mlp_block"


def save(directory: Path, *turns: tuple[str, int, int, Verdict | None]) -> Path:
    """A run with these verdicts, by problem, sample and turn."""
    store = Store(directory, {"agent": "test"})
    for problem, sample, index, verdict in turns:
        store.save(
            StoredTurn(
                problem=problem, sample=sample, index=index, model="m", observation="o", answer="a", code="c",
                prompt_tokens=None, completion_tokens=None, cost_usd=None, finish_reason=None,
                judged=verdict is not None, verdict=verdict,
            )
        )  # fmt: skip
    return directory


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    return save(
        tmp_path / "run",
        (RELU, 0, 0, make_verdict(speedup=2.0, memory=0.5)),
        (RELU, 1, 0, make_verdict(Status.WRONG_VALUE)),
        (SOFTMAX, 0, 0, make_verdict(Status.WRONG_HIDDEN)),
        (SOFTMAX, 1, 0, make_verdict(Status.COMPILE_ERROR)),
        (BLOCK, 0, 0, make_verdict(speedup=0.5)),
        (BLOCK, 0, 1, make_verdict(speedup=0.8)),
        (BLOCK, 1, 0, None),
    )


def test_the_numbers_are_of_the_best_sample_and_the_best_turn(a_run: Path) -> None:
    report = read_report(a_run)
    assert report.whole is not None
    assert report.whole.problems == 3
    assert report.whole.correct.value == pytest.approx(2 / 3)
    assert report.whole.standard.value == 1.0
    assert report.whole.fast["1"].value == pytest.approx(1 / 3)
    assert report.whole.speedup is not None
    assert report.whole.speedup.value == pytest.approx((2.0 * 0.8) ** 0.5)
    assert list(report.levels) == [1, 3]
    assert report.levels[3].problems == 1
    assert report.categories.keys() == {"activation", "reduction", "architecture"}
    assert report.devices == ("Scripted CPU",)


def test_it_is_printed_whole(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(a_run)]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("correct")]
    assert line.split()[1] == "66.7%"
    for words in ("level 1", "level 3", "pass@1", "fast_1.5", "architecture"):
        assert words in said


def test_json_alone_on_standard_output(a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(a_run), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"]["correct"]["value"] == pytest.approx(2 / 3)
    assert main(["report", str(a_run), "--json", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text()) == found


def test_a_problem_without_a_verdict_is_named_and_in_no_number(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(a_run, ("core/level1/matmul", 0, 0, None))
    assert read_report(a_run).unjudged == ("core/level1/matmul",)
    main(["report", str(a_run)])
    assert "without a verdict, in no number: core/level1/matmul" in capsys.readouterr().out


def test_a_run_without_any_verdict_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(save(tmp_path / "run", (RELU, 0, 0, None)))]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_no_run_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "with a run.json" in capsys.readouterr().err


def test_the_decomposition_of_two_runs_of_the_same_answers(a_run: Path, tmp_path: Path) -> None:
    lenient = save(
        tmp_path / "lenient",
        (RELU, 0, 0, make_verdict(speedup=8.0)),
        (RELU, 1, 0, make_verdict(speedup=9.0)),  # refused by the strict rules
        (SOFTMAX, 0, 0, make_verdict(speedup=4.0)),
        (SOFTMAX, 1, 0, make_verdict(Status.COMPILE_ERROR)),
        (BLOCK, 0, 0, make_verdict(speedup=0.9)),
    )
    found = read_report(a_run, standard=lenient).decomposition
    assert found is not None
    assert found.problems == 3
    values = {
        name: (step.correct.value, step.speedup.value if step.speedup else None) for name, step in found.steps.items()
    }
    assert values["standard"] == (1.0, pytest.approx((9.0 * 4.0 * 0.9) ** (1 / 3)))
    assert values["hidden"] == (pytest.approx(2 / 3), pytest.approx((8.0 * 0.9) ** 0.5))
    assert values["tf32"] == (pytest.approx(2 / 3), pytest.approx((2.0 * 0.8) ** 0.5))
    assert found.reach_hidden == pytest.approx(1 / 3)
    assert found.reach_tf32 == pytest.approx(1 / 3)


def make_baseline(problem: str, default: float, tf32: float, **changes: Any) -> Baseline:
    verdict = make_verdict()

    def variant(latency_ms: float) -> Variant:
        return Variant(
            latency_ms=latency_ms, turns_ms=(latency_ms,), clock="judge-open", peak_bytes=1, tf32={}, error=None
        )

    fields: dict[str, Any] = {
        "problem": problem, "source_sha256": "0", "precision": "fp32", "flags": (), "hardware": verdict.hardware,
        "software": verdict.software, "seconds": {},
        "variants": {"eager-default": variant(default), "eager-tf32": variant(tf32)},
    }  # fmt: skip
    return Baseline(**(fields | changes))


def test_the_decomposition_with_baselines(a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baselines.jsonl"
    lines = [make_baseline(RELU, 1.0, 1.0), make_baseline(SOFTMAX, 1.0, 1.0), make_baseline(BLOCK, 8.0, 1.0)]
    path.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    found = read_report(a_run, baseline=path).decomposition
    assert found is not None
    assert found.steps["standard"].correct.value == 1.0
    assert found.steps["hidden"].speedup is not None
    assert found.steps["hidden"].speedup.value == pytest.approx((2.0 * 0.8 * 8.0) ** 0.5)
    assert found.steps["tf32"].speedup is not None
    assert found.steps["tf32"].speedup.value == pytest.approx((2.0 * 0.8) ** 0.5)
    assert (found.reach_hidden, found.reach_tf32) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert main(["report", str(a_run), "--baseline", str(path)]) == 0
    assert "the hidden checks reach 33.3%, TF32 33.3%" in capsys.readouterr().out


def test_baselines_of_another_machine_are_refused(
    a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "baselines.jsonl"
    other = make_baseline(RELU, 1.0, 1.0, software={"torch": "9.9"})
    path.write_text(other.model_dump_json() + "\n")
    assert main(["report", str(a_run), "--baseline", str(path)]) == 2
    assert "torch 9.9 against 2.9.0" in capsys.readouterr().err


def test_baselines_without_the_one_that_is_needed_are_refused(
    a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "baselines.jsonl"
    whole = make_baseline(RELU, 1.0, 1.0)
    part = whole.model_copy(update={"variants": {"eager-tf32": whole.variants["eager-tf32"]}})
    path.write_text(part.model_dump_json() + "\n")
    assert main(["report", str(a_run), "--baseline", str(path)]) == 2
    assert "no eager-default" in capsys.readouterr().err


def test_two_ways_to_one_decomposition_are_refused(a_run: Path) -> None:
    assert main(["report", str(a_run), "--standard", str(a_run), "--baseline", "x"]) == 2


def test_every_problem_of_ours_has_the_category_that_it_should() -> None:
    problems = (*list_problems("core/*"), *(load_problem(name) for name in core.EXERCISES))
    found = {problem.id.removeprefix("core/"): categorise(problem.source) for problem in problems}
    expected = {
        "level1/layer_norm": "normalisation",
        "level1/matmul": "matrix product",
        "level1/relu": "element-wise",
        "level1/softmax": "softmax",
        "level2/conv_bias_relu": "convolution",
        "level2/linear_gelu_scale": "matrix product",
        "level2/matmul_bias_swish_row_max": "matrix product",
        "level2/residual_rms_norm": "reduction",
        "level3/attention_block": "attention",
        "level3/conv_residual_block": "convolution",
        "level3/gated_feed_forward": "matrix product",
        "level3/mlp_block": "matrix product",
    }
    assert found.items() >= expected.items()


def test_what_is_no_python_has_no_category() -> None:
    assert categorise("def f(:") is None


def test_a_file_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["report", str(tmp_path / "file")]) == 2
    assert "expected the directory of a run, with a run.json" in capsys.readouterr().err


def test_a_folder_of_several_runs_is_reported_run_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "all" / "search+m", (RELU, 0, 0, make_verdict(speedup=2.0)))
    save(tmp_path / "all" / "single-shot+m", (RELU, 0, 0, make_verdict(Status.WRONG_VALUE)))
    assert main(["report", str(tmp_path / "all")]) == 0
    first, second = capsys.readouterr().out.split(f"{tmp_path}/all/")[1:]
    assert first.startswith("search+m\n")
    assert "2.00x" in first
    assert second.startswith("single-shot+m\n")
    assert "2.00x" not in second
    assert main(["report", str(tmp_path / "all"), "--json", "-"]) == 0
    assert [one["whole"]["correct"]["value"] for one in json.loads(capsys.readouterr().out)] == [1.0, 0.0]
    assert main(["report", str(tmp_path / "all"), "--standard", str(tmp_path / "all" / "search+m")]) == 2
    assert main(["report", str(tmp_path)]) == 2
