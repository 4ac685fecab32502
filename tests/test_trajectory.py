"""Lines of trajectories, and what trainers are given of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli import main
from kbenv.errors import TrainingForbiddenError
from kbenv.store import Store, StoredCall, StoredMessage, StoredTurn
from kbenv.trajectory import FEATURES, dataset_card, ledger_line, to_json, to_preferences, to_sft, turn_line
from kbenv.verdict import Interval, Status
from tests.fakes import make_verdict

DOCS = Path(__file__).parent.parent / "docs" / "trajectory.md"
PYTHON = {
    "int64": int, "string": str, "bool": bool, "float64": float, "list<int64>": list,
    "list<struct<role: string, content: string>>": list,
}  # fmt: skip
TASK = (StoredMessage(role="system", content="S"), StoredMessage(role="user", content="# Task"))


def make_turn(number: int = 0, speedup: float | None = None, **overrides: Any) -> StoredTurn:
    """An answer, credited where it has a speedup, else wrong."""
    verdict = make_verdict(speedup=speedup) if speedup is not None else make_verdict(Status.WRONG_VALUE)
    fields: dict[str, Any] = {
        "problem": "core/level1/relu", "sample": number, "index": 0, "model": "m", "observation": "# Task",
        "messages": TASK, "answer": f"answer {number}", "code": f"number = {number}\n", "prompt_tokens": 3,
        "completion_tokens": 4, "cost_usd": 0.5, "finish_reason": "stop", "judged": True, "reward": 0.5,
        "verdict": verdict, "feedback": "F",
    }  # fmt: skip
    return StoredTurn(**(fields | overrides))


def lines(*turns: StoredTurn) -> list[dict[str, Any]]:
    return [turn_line(turn, "single-shot") for turn in turns]


@pytest.mark.parametrize(
    "turn",
    [make_turn(0, 2.0), make_turn(1), make_turn(2, judged=False, verdict=None, reward=None, code=None, feedback=None)],
    ids=["credited", "wrong", "unjudged"],
)
def test_a_line_has_every_field_of_its_type_or_null(turn: StoredTurn) -> None:
    (line,) = lines(turn)
    assert list(line) == list(FEATURES)
    for name, value in line.items():
        assert value is None or type(value) is PYTHON[FEATURES[name]], name
    assert json.loads(to_json(line)) == line


def test_a_line_says_what_the_verdict_does() -> None:
    (line,) = lines(make_turn(0, 2.0))
    assert (line["status"], line["credited"], line["speedup"], line["protocol"]) == ("PASSED", True, 2.0, "verified")
    assert json.loads(line["verdict"])["status"] == "PASSED"


def test_every_field_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in FEATURES:
        assert f"| `{name}` |" in text, name


def test_the_ledger_says_what_every_call_took() -> None:
    call = StoredCall(
        problem="p", sample=0, index=0, model="m", purpose="summary", observation="o", answer="a", prompt_tokens=5,
        completion_tokens=6, cost_usd=0.25, finish_reason="stop", settings={"temperature": 0.0},
        attempts=3, seconds=1.5,
    )  # fmt: skip
    line = ledger_line(call)
    assert (line["purpose"], line["attempts"], line["seconds"], line["cost_usd"]) == ("summary", 3, 1.5, 0.25)
    assert line["settings"] == {"temperature": 0.0}
    assert "answer" not in line


def test_fine_tuning_takes_credited_answers_with_the_conversation_as_it_was_sent() -> None:
    found = list(to_sft(lines(make_turn(0, 1.5), make_turn(1), make_turn(2, 3.0))))
    assert [line["speedup"] for line in found] == [1.5, 3.0]
    assert found[0]["messages"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "# Task"},
        {"role": "assistant", "content": "answer 0"},
    ]
    assert [line["speedup"] for line in to_sft(lines(make_turn(0, 1.5), make_turn(2, 3.0)), min_speedup=2.0)] == [3.0]
    assert [line["speedup"] for line in to_sft(lines(make_turn(0, 1.5), make_turn(2, 3.0)), best_only=True)] == [3.0]


def test_no_trainer_is_given_what_a_licence_forbids_to_train_on() -> None:
    forbidden = lines(make_turn(0, 2.0), make_turn(1, 3.0, problem="gpu-mode/pmpp_v2/sort_py"))
    for make in (to_sft, to_preferences):
        with pytest.raises(TrainingForbiddenError, match="gpu-mode/pmpp_v2/sort_py: the licence of gpu-mode"):
            list(make(forbidden))


def test_an_export_for_training_leaves_out_what_a_licence_forbids_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, problems in (("both", ["core/level1/relu", "gpu-mode/a/b"]), ("forbidden", ["gpu-mode/a/b"])):
        store = Store(tmp_path / name, {"agent": "single-shot"})
        for problem in problems:
            store.save(make_turn(0, 2.0, problem=problem))
    assert main(["export", str(tmp_path / "both"), "--format", "sft"]) == 0
    written = capsys.readouterr()
    assert [json.loads(line)["problem"] for line in written.out.splitlines()] == ["core/level1/relu"]
    assert "1 turns are left out: the licences of their sets restrict training on them (gpu-mode/a/b)" in written.err
    assert main(["export", str(tmp_path / "forbidden"), "--format", "preferences"]) == 2
    assert "the licence of gpu-mode" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "both")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["export", str(tmp_path / "both"), "--format", "sft", "--min-speedup", "nan"]) == 2
    assert "--min-speedup must be above 0; found nan" in capsys.readouterr().err


def test_right_is_preferred_over_wrong_and_fast_over_slow() -> None:
    pairs = list(to_preferences(lines(make_turn(0, 1.0), make_turn(1), make_turn(2, 3.0))))
    assert [(pair["reason"], pair["rejected"][0]["content"]) for pair in pairs] == [
        ("fast", "answer 0"),
        ("right", "answer 1"),
    ]
    assert all(pair["chosen"] == [{"role": "assistant", "content": "answer 2"}] for pair in pairs)
    assert pairs[0]["prompt"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "# Task"}]


def test_a_difference_within_the_intervals_is_no_preference() -> None:
    wide = make_verdict(speedup=2.0).model_copy(update={"speedup": Interval(value=2.0, low=0.9, high=4.0)})
    assert list(to_preferences(lines(make_turn(0, 1.0), make_turn(1, verdict=wide)))) == []
    assert list(to_preferences(lines(make_turn(0, 1.0), make_turn(1, 1.05)))) == []


def test_where_nothing_is_right_nothing_is_preferred() -> None:
    assert list(to_preferences(lines(make_turn(0), make_turn(1)))) == []


def test_answers_to_different_conversations_are_no_pair_unless_the_task_is_asked_for() -> None:
    later = (*TASK, StoredMessage(role="assistant", content="a"), StoredMessage(role="user", content="WRONG_VALUE"))
    turns = lines(make_turn(0), make_turn(1, 2.0, messages=later))
    assert list(to_preferences(turns)) == []
    (pair,) = to_preferences(turns, same="task")
    assert pair["prompt"][-1]["content"] == "# Task"
    assert pair["chosen"][0]["content"] == "```python\nnumber = 1\n```"


def test_equal_answers_and_filtered_and_unjudged_ones_are_left_out() -> None:
    turns = [
        make_turn(0, 2.0), make_turn(1), make_turn(2, answer="answer 1"), make_turn(3, outcome="filtered", answer=""),
        make_turn(4, verdict=None, judged=False, reward=None),
    ]  # fmt: skip
    assert [pair["rejected"][0]["content"] for pair in to_preferences(lines(*turns))] == ["answer 1"]


def test_a_run_loads_as_a_hugging_face_dataset_however_late_a_field_is_filled(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    run = tmp_path / "run"
    (run / "core" / "sample-0").mkdir(parents=True)
    (run / "core" / "sample-0" / "turn-000.json").write_text("{}")
    (run / "ledger.jsonl").write_text("{}\n")
    (run / "README.md").write_text(dataset_card("trajectories.jsonl"))
    wrong, right = (to_json(line) for line in lines(make_turn(0, answer="x" * 20_000), make_turn(1, 2.0)))
    (run / "trajectories.jsonl").write_text(wrong * 600 + right)  # more than one block of the reader
    found = datasets.load_dataset(str(run), split="train", cache_dir=str(tmp_path / "cache"))
    assert found.column_names == list(FEATURES)
    assert found["speedup"][599:] == [None, 2.0]
    assert found[600]["messages"] == lines(make_turn(1, 2.0))[0]["messages"]


def test_what_trainers_are_given_loads_without_a_card(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    turns = lines(make_turn(0, 2.0), make_turn(1))
    for name, found, columns in (
        ("sft", to_sft(turns), {"messages"}),
        ("pairs", to_preferences(turns), {"prompt", "chosen", "rejected"}),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(map(to_json, found)), encoding="utf-8")
        read = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
        assert columns <= set(read.column_names)
        assert len(read) == 1
