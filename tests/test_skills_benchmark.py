"""The measurement of the skills: what it judges, that it goes on where it stopped, and what it calls an effect."""

from __future__ import annotations

import importlib.util
import json
import sys
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kbenv.agents.skills import library
from kbenv.agents.skills.library import load_library
from kbenv.errors import SandboxError
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_plausibility, make_verdict

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")


def load() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "benchmarks" / "skills.py"
    spec = importlib.util.spec_from_file_location("benchmarks_skills", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


skills = load()
SKILL = next(skill for skill in load_library() if skill.id == "wide-access")
IN_PLACE = next(skill for skill in load_library() if skill.id == "results-in-place")


def lines(skill: Any, before: Verdict | None, after: Verdict | None) -> dict[str, dict[str, Any]]:
    names = ((skill.pair.before, before), (skill.pair.after, after))
    return {name: {"verdict": verdict.model_dump(mode="json") if verdict else None} for name, verdict in names}


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, evaluator: ScriptedEvaluator, *options: str) -> None:
    monkeypatch.setattr(skills, "Evaluator", lambda **_: evaluator)
    arguments = ["skills.py", "--runs", str(folder / "runs"), "--results", str(folder / "skills.md")]
    arguments += ["--shown", str(folder / "shown.json"), *options]
    monkeypatch.setattr(sys, "argv", arguments)
    assert skills.main() == 0


def test_every_pair_is_judged_on_one_kind_of_device() -> None:
    judged = {kernel for kind in ("cuda", "cpu") for _, kernel in skills.answers(kind)}
    assert judged == {kernel for skill in load_library() for kernel in (skill.pair.before, skill.pair.after)}
    assert not set(skills.answers("cuda")) & set(skills.answers("cpu"))


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = len(list(skills.answers("cpu")))
    run(monkeypatch, tmp_path, ScriptedEvaluator(), "--budget-s", "-1")
    evaluator = ScriptedEvaluator([*[make_verdict()] * 3, SandboxError("the machine")])
    run(monkeypatch, tmp_path, evaluator)
    assert len(evaluator.sources) == wanted
    path = tmp_path / "runs" / "verified-cpu.jsonl"
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:2], whole[2].replace('"source": "', '"source": "0'), *whole[3:], '{"kernel"']))
    again = ScriptedEvaluator()
    run(monkeypatch, tmp_path, again)
    assert again.sources == evaluator.sources[2:]
    none = ScriptedEvaluator()
    run(monkeypatch, tmp_path, none, "--table")
    assert none.sources == []
    assert "pairs show their effect" in (tmp_path / "skills.md").read_text()


def test_skills_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kernel for _, kernel in skills.answers("cuda", "no-spills, smaller-buffers")] == [
        "matmul_cuda_spills", "matmul_cuda_registers", "layer_norm_cuda_long_buffer", "layer_norm_cuda_short_buffer",
    ]  # fmt: skip
    evaluator = ScriptedEvaluator()
    run(monkeypatch, tmp_path, evaluator, "--only", "vectorised-functions")
    assert len(evaluator.sources) == 2
    with pytest.raises(SystemExit, match="no skill unheard-of"):
        run(monkeypatch, tmp_path, evaluator, "--only", "unheard-of")


def test_answers_are_judged_with_what_preconditions_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    evaluator = ScriptedEvaluator()
    run(monkeypatch, tmp_path, evaluator, "--budget-s", "-1")
    monkeypatch.setattr(skills, "Evaluator", lambda **options: asked.update(options) or evaluator)
    skills.main()
    assert asked["diagnostics"] == ("kernels", "code")


def test_an_effect_shows_when_its_interval_lies_above_one() -> None:
    row = skills.make_row(SKILL, lines(SKILL, make_verdict(speedup=1.0), make_verdict(speedup=1.5)))
    assert row[6] == "1.5x [1.36, 1.66]"
    assert row[8] == "yes"
    row = skills.make_row(SKILL, lines(SKILL, make_verdict(speedup=1.0), make_verdict(speedup=1.05)))
    assert row[8] == "no"


def test_a_skill_that_saves_memory_shows_by_memory() -> None:
    less = make_verdict(speedup=1.0, memory=2.0)
    less = less.model_copy(update={"memory": less.memory.model_copy(update={"submission_peak_bytes": 1 << 19})})
    row = skills.make_row(IN_PLACE, lines(IN_PLACE, make_verdict(speedup=1.0), less))
    assert (row[7], row[8]) == ("2.00x less", "yes")


def test_what_is_not_credited_shows_nothing() -> None:
    row = skills.make_row(SKILL, lines(SKILL, make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0)))
    assert (row[3], row[6], row[8]) == ("WRONG_VALUE", "", "no")
    row = skills.make_row(SKILL, lines(SKILL, None, make_verdict(speedup=2.0)))
    assert (row[3], row[8]) == ("not judged", "no")
    assert skills.make_row(SKILL, {}) is None
    assert json.dumps(row)


# -- without a judge --------------------------------------------------------------------------------------------------


def pair_line(skill: Any, before: list[float], after: list[float], **more: Any) -> dict[str, Any]:
    return {
        "skill": skill.id, "sources": [skills.fingerprint(skill.pair.before), skills.fingerprint(skill.pair.after)],
        "machine": {"name": "Some GPU", "torch": "2.11", "clock": "CUDA events", "date": "2026-11-30"},
        "failed": None, "ms": [before, after], "peak_bytes": [100, 50], **more,
    }  # fmt: skip


def test_the_effect_by_events_is_a_ratio_of_medians_with_its_interval() -> None:
    value, low, high = skills.effect_of(pair_line(SKILL, [2.0, 2.1, 1.9, 8.0] * 5, [1.0, 1.05, 0.95, 1.0] * 5))
    assert low <= value <= high
    assert low > 1.9
    assert high < 2.6


def test_what_is_too_little_to_call_a_gain_shows_nothing() -> None:
    row = skills.make_pair_row(SKILL, pair_line(SKILL, [1.003] * 20, [1.0] * 20))
    assert (row[6], row[8], row[9]) == ("1x [1, 1]", "no", "not asked")
    assert skills.make_pair_row(SKILL, pair_line(SKILL, [1.02] * 20, [1.0] * 20))[8] == "yes"


def test_preconditions_are_looked_at_with_the_times_against_the_ceilings() -> None:
    ceiling = make_plausibility(None).model_copy(update={"bytes": 4 * 10**9, "flops": 0, "bandwidth": 4e12})
    line = pair_line(SKILL, [1.6] * 4, [1.1] * 4, ceiling=ceiling.model_dump())
    assert skills.make_pair_row(SKILL, line)[9] == "holds/not"
    near = pair_line(SKILL, [1.05] * 4, [1.02] * 4, ceiling=ceiling.model_dump())
    assert skills.make_pair_row(SKILL, near)[9] == "not/not"  # at 95% of the bandwidth there is nothing to gain


def test_pairs_in_c_are_compared_and_timed_on_a_cpu_and_told_to_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills, "ROUNDS", 4)
    monkeypatch.setattr(skills, "ROUND_MS", 0.1)
    monkeypatch.setattr(skills, "load_library", lambda: (in_c,))
    in_c = next(skill for skill in load_library() if skill.id == "loops-along-rows")
    run(monkeypatch, tmp_path, ScriptedEvaluator(), "--events", "--device", "cpu")
    (line,) = [json.loads(text) for text in (tmp_path / "runs" / "events-cpu.jsonl").read_text().splitlines()]
    assert line["failed"] is None
    assert [len(times) for times in line["ms"]] == [4, 4]
    assert "the process's clock in one process, no judge" in (tmp_path / "skills.md").read_text()
    assert (tmp_path / "skills.md").read_text().count("| holds/not |") == 1
    assert json.loads((tmp_path / "shown.json").read_text())[in_c.id]["shows"] == "yes"
    again = (tmp_path / "runs" / "events-cpu.jsonl").read_text()
    run(monkeypatch, tmp_path, ScriptedEvaluator(), "--events", "--device", "cpu")
    assert (tmp_path / "runs" / "events-cpu.jsonl").read_text() == again


def test_an_answer_that_is_wrong_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Identity(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b * 1.5

    module = ModuleType("wrong")
    module.ModelNew = Identity  # type: ignore[attr-defined]
    future: Future[ModuleType] = Future()
    future.set_result(module)
    in_c = next(skill for skill in load_library() if skill.id == "loops-along-rows")
    line = skills.measure_pair(in_c, "cpu", {in_c.pair.before: future, in_c.pair.after: future})
    assert "an output is wrong" in line["failed"]
    row = skills.make_pair_row(in_c, line)
    assert (row[8], row[3]) == ("no", "")


def test_a_spent_budget_begins_no_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run(monkeypatch, tmp_path, ScriptedEvaluator(), "--events", "--device", "cpu", "--budget-s", "1")
    assert "pairs are left: run again" in capsys.readouterr().out
    assert not (tmp_path / "runs" / "events-cpu.jsonl").exists()


def test_what_a_pair_has_shown_stands_beside_its_expected_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tmp_path / "shown.json"
    told = {"effect": "2.1x [2, 2.2]", "memory": "1.50x less", "where": "Some GPU"}
    shown.write_text(json.dumps({SKILL.id: told | {"shows": "yes"}, IN_PLACE.id: told | {"shows": "no"}}))
    monkeypatch.setattr(library, "SHOWN", shown)
    found = {skill.id: skill.shown for skill in load_library.__wrapped__()}
    assert found[SKILL.id] == "2.1x [2, 2.2], 1.50x less memory (Some GPU)"
    assert found[IN_PLACE.id] is None
    assert found["tensor-cores"] is None


def test_events_do_not_say_whether_a_precondition_on_machine_code_holds() -> None:
    ceiling = make_plausibility(None).model_dump()
    one = next(skill for skill in load_library() if skill.id == "no-spills")
    assert skills.make_pair_row(one, pair_line(one, [2.0] * 9, [1.0] * 9, ceiling=ceiling))[9] == "not asked/not asked"
