"""`kbenv baseline` over a scripted evaluator: what it measures, what it finds on record, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbenv.audit import source_hash
from kbenv.baseline import VARIANTS, Baseline, Variant, VariantName, merge, read_table, speedup_against
from kbenv.cli import main
from kbenv.errors import DeviceMemoryError, UsageError
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol, get_protocol
from kbenv.verdict import Hardware, Status
from tests.fakes import make_verdict

LATENCIES: dict[VariantName, float | None] = {
    "eager-fp32": 8.0, "eager-default": 4.0, "eager-tf32": 2.0, "compiled": 1.5,
}  # fmt: skip


class Measured:
    """An evaluator that has baselines; `machine_name` is its GPU's."""

    machine_name = "NVIDIA H200"

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.device = "cuda:0"
        self.sandbox_note = None
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.protocol: Protocol = options["protocol"]
        self.fault: dict[str, BaseException] = {}

    def __enter__(self) -> Measured:
        return self

    def __exit__(self, *_: object) -> None: ...

    def machine(self) -> tuple[Hardware, dict[str, str | None]]:
        hardware = Hardware(
            device="cuda:0", name=self.machine_name, memory_bytes=1, driver="580.1", multiprocessors=1, l2_bytes=1,
            cpu="", cpu_count=1,
        )  # fmt: skip
        return hardware, {"torch": "2.11"}

    def baseline(self, problem: Problem, variants: Sequence[VariantName]) -> Baseline:
        self.asked.append((problem.id, tuple(variants)))
        if problem.id in self.fault:
            raise self.fault[problem.id]
        hardware, software = self.machine()
        made = {
            name: Variant(
                latency_ms=LATENCIES[name], turns_ms=(), clock="judge-gated", peak_bytes=3 << 20, tf32={},
                error=None if LATENCIES[name] else "it fails",
            )
            for name in variants
        }  # fmt: skip
        return Baseline(
            problem=problem.id, source_sha256=source_hash(problem, self.device), precision="fp32", variants=made,
            flags=(), hardware=hardware, software=software, seconds={},
        )  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    evaluator = Measured(protocol=get_protocol())

    def make(**options: Any) -> Measured:
        evaluator.options, evaluator.protocol = options, options["protocol"]
        return evaluator

    monkeypatch.setattr("kbenv.evaluator.Evaluator", make)
    return evaluator


FOUR = "core/level1/relu,core/level1/softmax,core/level1/matmul,core/level1/layer_norm"


def command(out: Path, *more: str, pattern: str = FOUR) -> int:
    return main(["baseline", pattern, "--out", str(out), *more])


def test_every_problem_has_a_line_and_the_sum_is_said(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path / "b.jsonl") == 0
    said = capsys.readouterr()
    assert "core/level1/relu\t8\t4\t2\t1.5\t4.00x\t2.00x\t3" in said.out
    assert (
        "4 problems; TF32 makes 4 of 4 (100.0%) more than 1.5x faster than eager-fp32; TF32 makes 4 of 4 " in said.err
    )
    assert "torch.compile is faster than eager TF32 on 4 of 4" in said.err
    table = read_table(tmp_path / "b.jsonl")
    assert table["core/level1/relu"].tf32_gain("eager-fp32") == 4.0
    assert table["core/level1/relu"].tf32_gain("eager-default") == 2.0
    assert measured.options["compiled_baseline"] is False


def test_what_is_on_record_is_not_measured_again_and_variants_are_added(measured: Measured, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    assert command(out, "--variants", "eager-tf32,eager-fp32") == 0
    assert measured.asked[0] == ("core/level1/layer_norm", ("eager-fp32", "eager-tf32"))
    measured.asked.clear()
    assert command(out) == 0
    assert measured.asked[0] == ("core/level1/layer_norm", ("eager-default", "compiled"))
    measured.asked.clear()
    assert command(out) == 0
    assert measured.asked == []
    assert set(read_table(out)["core/level1/relu"].variants) == set(VARIANTS)


def test_an_interrupt_keeps_what_there_is(measured: Measured, tmp_path: Path) -> None:
    measured.fault["core/level1/relu"] = KeyboardInterrupt()
    assert command(tmp_path / "b.jsonl") == 130
    measured.fault.clear()
    measured.asked.clear()
    assert command(tmp_path / "b.jsonl") == 0
    assert [name for name, _ in measured.asked] == ["core/level1/relu", "core/level1/softmax"]


def test_when_the_seconds_are_over_nothing_more_is_begun(measured: Measured, tmp_path: Path) -> None:
    assert command(tmp_path / "b.jsonl", "--seconds", "0.000001") == 1
    assert measured.asked == []
    assert command(tmp_path / "b.jsonl", "--seconds", "600") == 0
    assert command(tmp_path / "b.jsonl", "--seconds", "0.000001") == 0  # all is there


def test_a_problem_that_cannot_be_measured_is_said_and_the_others_go_on(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured.fault["core/level1/relu"] = DeviceMemoryError("needs 200 GiB")
    assert command(tmp_path / "b.jsonl") == 3
    assert "core/level1/relu: no baseline: needs 200 GiB" in capsys.readouterr().err
    assert len(read_table(tmp_path / "b.jsonl")) == 3


def test_a_file_of_another_gpu_is_refused_before_anything_is_measured(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path / "b.jsonl", pattern="core/level1/relu")
    measured.asked.clear()
    measured.machine_name = "NVIDIA A100"
    assert command(tmp_path / "b.jsonl") == 2
    assert "device NVIDIA H200 against NVIDIA A100" in capsys.readouterr().err
    assert measured.asked == []


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--variants", "eager"], "--variants must be among"), (["--seconds", "0"], "--seconds must be above 0")],
)
def test_bad_options_measure_nothing(
    measured: Measured, tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path / "b.jsonl", *more) == 2
    assert words in capsys.readouterr().err
    assert measured.asked == []


def test_a_variant_that_failed_is_shown_and_not_measured_again(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LATENCIES, "compiled", None)
    assert command(tmp_path / "b.jsonl", pattern="core/level1/relu") == 0
    said = capsys.readouterr()
    assert "\tfailed\t" in said.out
    assert "compiled failed: it fails" in said.err
    measured.asked.clear()
    command(tmp_path / "b.jsonl", pattern="core/level1/relu")
    assert measured.asked == []


def test_baselines_of_two_machines_do_not_merge(measured: Measured) -> None:
    from kbenv.problems import load_problem

    first = measured.baseline(load_problem("core/level1/relu"), ["eager-fp32"])
    second = first.model_copy(update={"software": {"torch": "2.12"}})
    with pytest.raises(UsageError, match=r"torch 2\.12 against 2\.11"):
        merge([first, second])


def test_a_speedup_against_another_baseline_is_the_verdicts_times_the_ratio(measured: Measured) -> None:
    from kbenv.problems import load_problem

    measured.protocol = get_protocol()
    hardware, software = measured.machine()
    baseline = measured.baseline(load_problem("core/level1/relu"), VARIANTS)
    verdict = make_verdict(speedup=1.5, hardware=hardware, software=software)
    assert speedup_against(verdict, baseline, "eager-tf32") == pytest.approx(1.5)
    assert speedup_against(verdict, baseline, "eager-fp32") == pytest.approx(6.0)
    assert speedup_against(verdict, baseline, "compiled") == pytest.approx(1.125)
    upstream = make_verdict(speedup=6.0, hardware=hardware, software=software, protocol=get_protocol("kernelbench"))
    assert speedup_against(upstream, baseline, "eager-tf32") == pytest.approx(3.0)  # timed under PyTorch's defaults
    assert speedup_against(make_verdict(Status.WRONG_HIDDEN), baseline, "eager-fp32") is None
    half = make_verdict(hardware=hardware, software=software, protocol=get_protocol("verified", "bf16"))
    with pytest.raises(UsageError, match="in fp32, the verdict in bf16"):
        speedup_against(half, baseline, "eager-fp32")


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make it with `kbenv baseline`"):
        read_table(tmp_path / "none.jsonl")
    (tmp_path / "note.jsonl").write_text(json.dumps("a note") + "\n")
    with pytest.raises(UsageError, match="line 1 is no baseline"):
        read_table(tmp_path / "note.jsonl")
