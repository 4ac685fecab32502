"""What findings are read off an audit's numbers, and `kbenv problems audit` over a scripted evaluator."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from kbenv.audit import Audit, admitting_tolerance, audit_key, source_hash
from kbenv.cli import main
from kbenv.cli.audit import row, rules
from kbenv.errors import DeviceMemoryError, UsageError
from kbenv.problems import load_problem
from kbenv.problems.problem import Problem
from kbenv.record import Record
from kbenv.verdict import Hardware

HARDWARE = Hardware(
    device="cpu", name="x86_64", memory_bytes=1 << 34, driver=None, multiprocessors=None, l2_bytes=None, cpu="a CPU",
    cpu_count=2,
)  # fmt: skip
SOFTWARE = {"kbenv": "1", "torch": "2", "cuda": None}


def output(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "elements": 100, "nonfinite": 0, "mean": 0.1, "spread": 1.0, "rms": 1.0, "max_abs": 3.0, "small_share": 0.01,
        "noise": 1e-7, "shape": (10, 10), "dtype": "float32", "between": 1.4,
        "tolerances": {"zeros": 0.75, "mean": 0.8, "frozen": 2.0},
    }  # fmt: skip
    return fields | changes


def distribution(name: str, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": name, "touched": True, "error": None, "dropped": None, "outputs": (output(),),
        "errors": {"rounding": 1e-7, "jitter": 1e-7}, "ill_conditioned": False,
    }  # fmt: skip
    return fields | changes


def state(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "outputs": (output(),), "errors": {"rounding": 1e-7, "baseline": 3e-4, "jitter": 1e-7},
        "ill_conditioned": False, "distributions": (distribution("D1"), distribution("rows")),
    }  # fmt: skip
    return fields | changes


def tensor(name: str, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": "parameter", "name": name, "module": "Linear", "own_name": name.rpartition(".")[2], "shape": (64,),
        "dtype": "float32", "constant": None,
    }  # fmt: skip
    return fields | changes


def make_audit(problem: str = "core/level1/relu", **changes: Any) -> Audit:
    size: dict[str, Any] = {
        "forward_ms": 1.0, "device_ms": None, "input_bytes": 4096, "output_bytes": 4096, "weight_bytes": 0,
        "peak_bytes": None, "need_bytes": 1 << 30, "have_bytes": 1 << 34, "slots": 8, "exclusive": False,
        "draws_on_device": True,
    }  # fmt: skip
    size |= changes.pop("size", {})
    fields: dict[str, Any] = {
        "problem": problem, "source_sha256": source_hash(load_problem("core/level1/relu"), "cpu"),
        "protocol": rules("fp32", 300.0), "failure": None, "size": size, "tensors": (), "given": state(),
        "redraw": {"error": None, "drawn": (), "left": ()}, "redrawn": None,
        "randomness": {"repeat": 0.0, "draws": False, "repeat_in_evaluation": None}, "mutated": (), "inputs": (),
        "parameters": (), "no_float64": None, "skipped": (), "hardware": HARDWARE, "software": SOFTWARE, "seeds": {},
        "seconds": {},
    }  # fmt: skip
    return Audit(**fields | changes)


def degenerate(audit: Audit) -> list[str]:
    return [finding.kind for finding in audit.degenerate]


def notes(audit: Audit) -> list[str]:
    return [finding.flag for finding in audit.notes]


ZERO = output(mean=0.0, spread=0.0, rms=0.0, max_abs=0.0, between=0.0, noise=0.0, small_share=1.0)
NOISE = output(mean=1e-9, spread=2e-9, rms=2e-9, max_abs=8e-9, between=3e-9, noise=2e-9, small_share=1.0)


def test_a_sound_audit_has_no_findings() -> None:
    assert degenerate(make_audit()) == notes(make_audit()) == []


@pytest.mark.parametrize("empty", [ZERO, NOISE], ids=["exactly", "up to rounding"])
def test_constant_means_one_value_on_plain_draws_and_on_every_distribution(empty: dict[str, Any]) -> None:
    everywhere = state(outputs=(empty,), distributions=(distribution("D2", outputs=(empty,)),))
    assert degenerate(make_audit(given=everywhere)) == ["constant"]
    elsewhere = state(outputs=(empty,), distributions=(distribution("D2"),))
    audit = make_audit(given=elsewhere)
    assert degenerate(audit) == ["constant-on-plain"]
    assert "constant-on-plain" not in notes(audit)
    audit = make_audit(given=elsewhere, redrawn=state())
    assert degenerate(audit) == []
    assert "constant-on-plain" in notes(audit)


def test_constant_as_given_is_degenerate_whatever_redrawing_makes_of_it() -> None:
    given = state(outputs=(ZERO,), distributions=())
    assert degenerate(make_audit(given=given, redrawn=state())) == ["constant"]


def test_one_of_several_outputs_may_be_constant() -> None:
    assert degenerate(make_audit(given=state(outputs=(ZERO, output()), distributions=()))) == []


def test_a_single_number_is_constant_only_when_two_draws_agree() -> None:
    loss = output(elements=1, spread=0.0, between=1e-4)
    assert degenerate(make_audit(given=state(outputs=(loss,), distributions=()))) == []
    same = output(elements=1, spread=0.0, between=1e-7)
    assert degenerate(make_audit(given=state(outputs=(same,), distributions=()))) == ["constant"]


def test_independent_outputs_vary_within_and_not_between_draws() -> None:
    frozen = output(between=0.0)
    given = state(outputs=(frozen,), distributions=(distribution("D2", outputs=(output(),)),))
    assert degenerate(make_audit(given=given)) == ["input-independent"]
    given = state(outputs=(frozen,), distributions=(distribution("D2", outputs=(output(rms=3.0),)),))
    assert degenerate(make_audit(given=given)) == ["independent-on-plain"]


def test_a_failure_is_degenerate_unless_the_problem_itself_leaves_the_distribution_out() -> None:
    failing = distribution("D4", error="ValueError: no", outputs=())
    assert degenerate(make_audit(given=state(distributions=(failing,)))) == ["fails"]
    known = failing | {"dropped": "negative numbers"}
    assert degenerate(make_audit(given=state(distributions=(known,)))) == []
    assert degenerate(make_audit(failure="it raises", given=None, size={})) == ["fails"]


def test_randomness_explains_all_that_looks_like_rounding() -> None:
    shaken = state(ill_conditioned=True, errors={"rounding": 0.5})
    random = {"repeat": 0.5, "draws": True, "repeat_in_evaluation": 0.0}
    audit = make_audit(given=shaken, randomness=random)
    assert degenerate(audit) == ["random"]
    assert "they agree" in audit.degenerate[0].text
    slight = make_audit(randomness={"repeat": 1e-7, "draws": True, "repeat_in_evaluation": None})
    assert degenerate(slight) == []
    assert notes(slight) == ["draws-numbers", "nondeterministic"]


def test_the_state_that_is_judged_decides_about_conditioning() -> None:
    ill = state(ill_conditioned=True, errors={"jitter": 0.2})
    assert degenerate(make_audit(given=ill)) == ["ill-conditioned"]
    cured = make_audit(given=ill, redrawn=state())
    assert degenerate(cured) == []
    assert "ill-conditioned-as-given" in notes(cured)
    assert degenerate(make_audit(redrawn=ill)) == ["ill-conditioned"]


def test_nothing_finite_is_degenerate() -> None:
    gone = output(nonfinite=100, mean=None, spread=None, rms=None, max_abs=None, between=None)
    gone |= {"tolerances": {"zeros": None, "mean": None, "frozen": None}}
    audit = make_audit(given=state(outputs=(gone,), distributions=()))
    assert degenerate(audit) == ["no-finite-output"]
    assert row(audit)[4] == ""


@pytest.mark.parametrize(
    ("needed", "level"),
    [([0.5], None), ([9e-3], 1e-2), ([1e-5, 5e-4], 1e-3), ([0.0], 1e-4), ([1e-5, None], None)],
)
def test_the_tolerance_that_admits_is_the_least_for_all_outputs(
    needed: list[float | None], level: float | None
) -> None:
    assert admitting_tolerance(needed) == level


def test_distributions_that_the_reference_does_not_bear_are_named() -> None:
    distributions = (
        distribution("D4", outputs=(output(nonfinite=7),)),
        distribution("large", ill_conditioned=True, errors={"jitter": 0.4}),
        distribution("ties", touched=False, outputs=()),
    )
    audit = make_audit(given=state(distributions=distributions))
    assert notes(audit) == ["nan-or-inf:D4", "unsure:large"]
    everywhere = state(outputs=(output(nonfinite=7),), distributions=distributions[:1])
    assert notes(make_audit(given=everywhere)) == ["nonfinite"]  # it has them anyway, and they must be reproduced


def test_constant_parameters_are_counted_by_kind() -> None:
    tensors = (
        tensor("bn1.weight", module="BatchNorm2d", constant=1.0),
        tensor("bn2.weight", module="BatchNorm2d", constant=1.0),
        tensor("bn1.running_mean", role="buffer", module="BatchNorm2d", constant=0.0),
        tensor("scale", module="Model", shape=(1,), constant=1.0),
        tensor("drawn", module="Model", shape=(1,), constant=0.3127),
        tensor("weight"),
    )
    redraw = {"error": None, "drawn": (), "left": ("bn2.weight", "bn1.running_mean")}
    audit = make_audit(tensors=tensors, redraw=redraw)
    assert audit.identity_kinds == {"BatchNorm2d.weight = 1": 2, "Model.scale = 1": 1}
    assert notes(audit) == ["identity(3)", "not-redrawn"]
    assert audit.notes[1].text == "redrawing does not reach bn2.weight"


def test_no_visible_effect_means_within_rounding() -> None:
    changes = {"a": 0.0, "b": 2e-7, "c": 1e-5, "d": None}
    parameters = tuple({"name": name, "change": change, "error": None} for name, change in changes.items())
    audit = make_audit(parameters=parameters)
    assert audit.notes[0].text == "no visible effect: a, b"
    empty = state(outputs=(ZERO,), distributions=())
    assert "unused-parameter(2)" not in notes(make_audit(given=empty, parameters=parameters))


def test_inputs_and_sizes_have_their_flags() -> None:
    inputs = (
        {"shape": (2,), "dtype": "float32", "varies": True, "change": 1.0, "error": None},
        {"shape": (2,), "dtype": "float32", "varies": True, "change": 0.0, "error": None},
        {"shape": (2,), "dtype": "float32", "varies": False, "change": None, "error": None},
    )
    size = {"device_ms": 0.004, "exclusive": True, "draws_on_device": False}
    audit = make_audit(inputs=inputs, mutated=(0,), size=size, no_float64="a fault", skipped=("large",))
    assert notes(audit) == [
        "same-input:2", "unused-input:1", "mutates:0", "no-float64", "launch-bound", "exclusive", "cpu-draws",
        "cut-short",
    ]  # fmt: skip


def test_an_audit_reads_what_it_writes_findings_included() -> None:
    audit = make_audit(given=state(outputs=(ZERO,), distributions=()))
    data = json.loads(audit.model_dump_json())
    assert data["degenerate"][0]["kind"] == "constant"
    assert Audit.model_validate_json(json.dumps(data)) == audit


def test_another_source_machine_version_or_rule_is_another_audit_and_another_limit_is_not() -> None:
    key = make_audit().key
    assert make_audit(protocol=rules("fp32", 9.0)).key == key
    assert make_audit(protocol=rules("bf16", 300.0)).key != key
    assert make_audit(source_sha256="0").key != key
    assert make_audit(software=SOFTWARE | {"torch": "3"}).key != key
    assert make_audit(hardware=HARDWARE.model_copy(update={"name": "H200"})).key != key
    assert key == audit_key("core/level1/relu", make_audit().source_sha256, rules("fp32", 1.0), HARDWARE, SOFTWARE)


# -- the command ------------------------------------------------------------------------------------------------------


class ScriptedAuditor:
    """Answers with audits of its own making; an exception in `script` is raised for that problem."""

    device = "cpu"

    def __init__(self, script: dict[str, BaseException | dict[str, Any]], protocol: Any) -> None:
        self.script = script
        self.protocol = protocol
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type | None, __: BaseException | None, ___: TracebackType | None) -> None:
        pass

    def machine(self) -> tuple[Hardware, dict[str, str | None]]:
        return HARDWARE, SOFTWARE

    def audit(self, problem: Problem) -> Audit:
        self.asked.append(problem.id)
        answer = self.script.get(problem.id, {})
        if isinstance(answer, BaseException):
            raise answer
        changes = {"source_sha256": source_hash(problem, "cpu"), "protocol": self.protocol} | answer
        return make_audit(problem.id, **changes)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is answered, by problem; `asked` collects the problems that were audited."""
    answers: dict[str, Any] = {}
    asked: list[str] = []

    def open_scripted(arguments: Any, _: Any) -> ScriptedAuditor:
        auditor = ScriptedAuditor(answers, arguments.protocol)
        auditor.asked = asked
        return auditor

    monkeypatch.setattr("kbenv.cli.audit.open_evaluator", open_scripted)
    answers["asked"] = asked
    return answers


FOUR = "core/level1/layer_norm,core/level1/matmul,core/level1/relu,core/level1/softmax"


def audit_command(*arguments: object) -> int:
    return main(["problems", "audit", *map(str, arguments)])


def test_every_problem_has_a_row_and_a_line(script: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    script["core/level1/softmax"] = {"given": state(outputs=(ZERO,), distributions=())}
    assert audit_command(FOUR) == 0
    captured = capsys.readouterr()
    rows = {cells[0]: cells[1:] for cells in (line.split("\t") for line in captured.out.splitlines())}
    assert len(rows) == 4
    assert rows["core/level1/relu"][0] == "sound"
    assert rows["core/level1/softmax"][0] == "degenerate"
    assert rows["core/level1/softmax"][-1].startswith("constant ")
    assert "core/level1/softmax: degenerate: the output is constant" in captured.err


def test_each_case_of_a_problem_is_audited_hidden_ones_too(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    id = "core/level4/deviation_norm_any_shape"
    assert audit_command(id) == 0
    assert script["asked"] == [f"{id}#{name}" for name in ("shown", "narrow", "one-row", "wide")]
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_problem_without_an_audit_is_one_line_and_the_others_go_on(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script["core/level1/matmul"] = DeviceMemoryError("need 90 GiB\nhave 80")
    assert audit_command(FOUR, "--out", tmp_path / "a.jsonl") == 3
    captured = capsys.readouterr()
    assert "core/level1/matmul: no audit: need 90 GiB have 80\n" in captured.err
    assert len(captured.out.splitlines()) == 3
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3


def test_what_is_on_record_is_not_made_again(script: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "audits.jsonl"
    assert audit_command(FOUR, "--out", path) == 0
    more = f"{FOUR},core/level2/residual_rms_norm"
    assert audit_command(more, "--out", path, "--json", tmp_path / "all.json") == 0
    assert sorted(script["asked"]) == sorted(set(script["asked"]))
    assert len(json.loads((tmp_path / "all.json").read_text())) == 5
    script["asked"].clear()
    assert audit_command("core/level1/relu", "--out", path, "--precision", "bf16") == 0
    assert script["asked"] == ["core/level1/relu"]


def test_what_a_shorter_limit_had_cut_is_made_again(script: dict[str, Any], tmp_path: Path) -> None:
    script["core/level1/relu"] = {"skipped": ("large",)}
    path = tmp_path / "audits.jsonl"
    for limit_s in (10, 10, 20):
        assert audit_command("core/level1/relu", "--out", path, "--limit-s", limit_s) == 0
    assert len(script["asked"]) == 2


def test_an_interrupt_keeps_what_there_is(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audits.jsonl"
    script["core/level1/relu"] = KeyboardInterrupt()
    assert audit_command(FOUR, "--out", path, "--json", tmp_path / "all.json") == 130
    assert "run the same command again to go on" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "all.json").read_text())) == len(path.read_text().splitlines()) == 2
    del script["core/level1/relu"]
    script["asked"].clear()
    assert audit_command(FOUR, "--out", path) == 0
    assert script["asked"] == ["core/level1/relu", "core/level1/softmax"]


def test_a_line_that_was_cut_off_is_made_again_and_another_is_refused(script: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "audits.jsonl"
    whole = make_audit().model_dump_json() + "\n"
    path.write_text(whole + whole[:200])
    assert len(Record(path, Audit).read()) == 1
    assert path.read_text() == whole
    path.write_text('{"schema_version": 2}\n' + whole)
    assert len(Record(path, Audit).read()) == 1
    path.write_text("a note\n" + whole)
    with pytest.raises(UsageError, match="line 1 is no audit"):
        Record(path, Audit).read()


@pytest.mark.parametrize("options", [["--limit-s", "0"], ["--out", "/none/such"], ["--json", "/none/such"]])
def test_bad_options_run_nothing(script: dict[str, Any], options: list[str]) -> None:
    assert audit_command("core/level1/relu", *options) == 2
    assert script["asked"] == []


def test_json_on_standard_output_is_alone_there(script: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_command("core/level1/relu", "--json", "-") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["problem"] == "core/level1/relu"
