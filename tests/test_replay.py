"""Replayed answers are chosen by what was last said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbenv.agents import Message
from kbenv.agents.replay import has_replay, load_replay
from kbenv.errors import ModelError, UsageError
from kbenv.extraction import extract_code, says_done
from kbenv.feedback import render_feedback
from kbenv.problems import load_problem
from kbenv.prompt import render_prompt
from kbenv.protocol import get_protocol
from kbenv.verdict import Status
from tests.fakes import make_verdict

PROBLEM = "core/level1/relu"
SCRIPT = """
[[rule]]
when = "^COMPILE_ERROR"
task = "^Device: CUDA"
answer = ["fixed_cuda.md"]

[[rule]]
when = "^COMPILE_ERROR"
answer = ["fixed.md"]

[[rule]]
when = "^# Task"
answer = ["one.md", "two.md", "three.md"]
"""
SHIPPED = Path(__file__).parent.parent / "examples" / "replay"
SHIPPED_PROBLEMS = sorted(str(path.parent.relative_to(SHIPPED)) for path in SHIPPED.rglob("script.toml"))
CPU_TASK = Message("user", "# Task\n\nDevice: CPU\n")
CUDA_TASK = Message("user", "# Task\n\nDevice: CUDA GPU\n")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / PROBLEM
    folder.mkdir(parents=True)
    (folder / "script.toml").write_text(SCRIPT)
    for name in ("one", "two", "three", "fixed", "fixed_cuda"):
        (folder / f"{name}.md").write_text(name)
    return tmp_path


def test_the_last_observation_decides_whatever_the_turn(directory: Path) -> None:
    model = load_replay(directory, PROBLEM)
    error = Message("user", "COMPILE_ERROR: the kernel did not compile.")
    for earlier in ([], [Message("assistant", "x"), Message("user", "WRONG_VALUE")] * 3):
        messages = [Message("system", "s"), CPU_TASK, *earlier, Message("assistant", "x"), error]
        assert model.query(messages).text == "fixed"


def test_a_sample_takes_its_answer_modulo_their_number(directory: Path) -> None:
    model = load_replay(directory, PROBLEM)
    texts = [model.query([CPU_TASK], sample=sample).text for sample in range(4)]
    assert texts == ["one", "two", "three", "one"]


def test_a_rule_may_depend_on_the_task_as_well(directory: Path) -> None:
    model = load_replay(directory, PROBLEM)
    error = Message("user", "COMPILE_ERROR")
    assert model.query([CUDA_TASK, Message("assistant", "x"), error]).text == "fixed_cuda"


def test_a_replayed_answer_costs_nothing(directory: Path) -> None:
    completion = load_replay(directory, PROBLEM).query([CPU_TASK])
    assert (completion.cost_usd, completion.prompt_tokens, completion.finish_reason) == (0.0, 0, "stop")


def test_an_observation_without_a_rule_is_an_error_that_names_the_script(directory: Path) -> None:
    messages = [CPU_TASK, Message("assistant", "x"), Message("user", "PASSED: every check passed.")]
    with pytest.raises(ModelError, match=r"script\.toml: no rule matches.*PASSED"):
        load_replay(directory, PROBLEM).query(messages)


def test_a_problem_without_a_script_is_a_usage_error(directory: Path) -> None:
    assert has_replay(directory, PROBLEM)
    assert not has_replay(directory, "core/level1/other")
    with pytest.raises(UsageError, match="core/level1/other"):
        load_replay(directory, "core/level1/other")


@pytest.mark.parametrize(
    "script",
    ["[[rule]", "", '[[rule]]\nwhen = "("\nanswer = ["one.md"]', '[[rule]]\nwhen = "x"\nanswer = []', "x = 1"],
)
def test_a_malformed_script_is_a_usage_error_that_names_it(directory: Path, script: str) -> None:
    (directory / PROBLEM / "script.toml").write_text(script)
    with pytest.raises(UsageError, match=r"script\.toml"):
        load_replay(directory, PROBLEM)


def test_a_missing_answer_file_is_found_before_anything_is_asked(directory: Path) -> None:
    (directory / PROBLEM / "three.md").unlink()
    with pytest.raises(UsageError, match=r"three\.md"):
        load_replay(directory, PROBLEM)


def test_answers_to_at_least_six_problems_are_shipped() -> None:
    assert len(SHIPPED_PROBLEMS) >= 6


@pytest.mark.parametrize("problem", SHIPPED_PROBLEMS)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_shipped_answers_reply_to_the_prompt_and_to_every_verdict(problem: str, device: str) -> None:
    model = load_replay(SHIPPED, problem)
    task = Message("user", render_prompt(load_problem(problem), get_protocol(), device))
    answers = [model.query([task], sample=sample).text for sample in range(5)]
    assert all("triton" not in answer and "cuda" not in answer for answer in answers) or device != "cpu"
    assert all("ctypes" not in answer for answer in answers) or device == "cpu"
    assert not any(says_done(answer) for answer in answers)
    for status in Status:
        for speedup in (0.001, 0.5, 2.0):
            verdict = make_verdict(status, **({"speedup": speedup} if status is Status.PASSED else {}))
            feedback = Message("user", render_feedback(verdict))
            reply = model.query([task, Message("assistant", answers[0]), feedback]).text
            assert says_done(reply) or extract_code(reply) is not None


@pytest.mark.parametrize("problem", SHIPPED_PROBLEMS)
def test_every_shipped_answer_is_used_and_holds_at_most_one_kernel_source(problem: str) -> None:
    model = load_replay(SHIPPED, problem)
    named = {name for rule in model.script.rule for name in rule.answer}
    assert named == {path.name for path in model.directory.glob("*.md")}
    for name in named:
        text = (model.directory / name).read_text(encoding="utf-8")
        assert text.count("```") in (0, 2), name
