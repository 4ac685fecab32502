"""The skills agent: who is asked what and when, and that nothing which failed is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from kbenv.agents import Message, Trajectory, Turn
from kbenv.agents.model import ContextWindowError
from kbenv.agents.scripted import ScriptedModel
from kbenv.agents.skills import Skills
from kbenv.agents.skills.library import load_library, read_kernel
from kbenv.agents.skills.memory import Memory, Move, is_repetition
from kbenv.agents.stopping import Stop
from kbenv.env import SingleTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.problems import load_problem
from kbenv.prompts import render
from kbenv.verdict import Stage, Status, Verdict
from tests.fakes import ScriptedEvaluator, make_verdict
from tests.test_prompts import golden

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

PROBLEM = "core/level1/matmul"
NAIVE, SHARED, REGISTERS = (read_kernel(f"matmul_cuda_{name}") for name in ("naive", "shared", "registers"))
WRONG = make_verdict(Status.WRONG_VALUE)


def right(speedup: float) -> Verdict:
    return make_verdict(speedup=speedup)


def answer(code: str) -> str:
    return f"Here.\n\n```python\n{code}```\n"


class Cast(ScriptedModel):
    """Answers with the given codes in turn, plans by name and diagnoses."""

    def __init__(self, codes: Sequence[str], plan: str = "the first one") -> None:
        super().__init__([""])
        self.codes = list(codes)
        self.plan = plan

    def query(self, messages: Any, *, sample: int = 0, purpose: str = "answer") -> Any:
        number = min(self.purposes.count("answer"), len(self.codes) - 1)
        said = {"answer": answer(self.codes[number]), "plan": self.plan, "diagnosis": f"Diagnosis {len(self.asked)}."}
        self.replies = [said[purpose]]
        return super().query(messages, sample=sample, purpose=purpose)


def play(codes: Sequence[str], verdicts: Sequence[Verdict], calls: int, **options: Any) -> tuple[Cast, Trajectory]:
    model = Cast(codes, plan=options.pop("plan", "the first one"))
    evaluator = ScriptedEvaluator(verdicts, device="cuda:0")
    env = SingleTurnEnv(load_problem(PROBLEM), evaluator=cast(Evaluator, evaluator))
    return model, Skills(model, calls, **options).run(env, PROBLEM)


def conversation(model: Cast, number: int) -> tuple[Message, ...]:
    """The one of answer `number`."""
    answers = [asked for asked, purpose in zip(model.asked, model.purposes, strict=True) if purpose == "answer"]
    return answers[number]


def test_a_right_answer_is_improved_by_the_skill_that_its_features_call_for() -> None:
    model, trajectory = play([NAIVE, SHARED, REGISTERS], [right(0.1), right(0.2), right(0.8)], 3)
    assert model.purposes == ["answer"] * 3  # where one skill applies nobody is asked to choose
    assert "tiles of the operands in shared memory" in conversation(model, 1)[-1].content
    assert "several results a thread" in conversation(model, 2)[-1].content
    assert trajectory.best is not None
    assert trajectory.best.speedup == 0.8
    assert [turn.index for turn in trajectory.turns] == [0, 1, 2]


def test_the_writer_reads_the_fastest_answer_its_features_and_the_skills_example() -> None:
    model, _ = play([NAIVE, SHARED], [right(0.1), right(0.2)], 2)
    text = conversation(model, 1)[-1].content
    assert text.count(NAIVE.rstrip()) == 2  # as the answer to improve, and as the library's example before
    assert SHARED.rstrip() in text
    assert "- source.own_product: True" in text
    assert "- the first answer: 0.1x" in text


def test_a_failure_is_diagnosed_and_repaired_and_then_its_skill_is_spent() -> None:
    model, trajectory = play([NAIVE, SHARED, SHARED + "# 1\n", SHARED + "# 2\n", NAIVE + "# 3\n"],
                             [right(0.1), WRONG, WRONG, WRONG, right(0.3)], 7, repairs=2)  # fmt: skip
    assert model.purposes == ["answer", "answer", "diagnosis", "answer", "diagnosis", "answer", "answer"]
    repair = conversation(model, 2)
    assert [message.role for message in repair] == ["system", "user", "assistant", "user"]
    assert "Diagnosis 2." in repair[-1].content
    last = conversation(model, 4)[-1].content
    assert "- tiles-in-shared-memory: failed (WRONG_VALUE)" in last
    assert "How: Loop over the inner dimension" not in last
    assert len(trajectory.turns) == 5


def test_a_skill_without_gain_is_not_tried_again_and_the_faster_answer_stays_the_base() -> None:
    model, _ = play([NAIVE, SHARED, NAIVE + "# own\n"], [right(0.2), right(0.2), right(0.3)], 3)
    text = conversation(model, 2)[-1].content
    assert "- tiles-in-shared-memory: 0.2x after 0.2x, no gain" in text
    assert "# The fastest right answer so far: 0.2x\n\n```python\n" + NAIVE.rstrip() in text
    assert "None of the known changes applies any more" in text


def test_where_several_skills_apply_the_planner_chooses() -> None:
    small = read_kernel("matmul_triton_one_stage").replace("tl.store(c_ptr", "tl.store(c_ptr  ").replace("=128", "=32")
    _, first = play([small], [right(0.1)], 3)
    assert len(first.turns) == 2
    model, _ = play([small, small + "# 1\n"], [right(0.1), right(0.2)], 3, plan="loads-in-flight\nBecause it waits.")
    assert model.purposes == ["answer", "plan", "answer"]
    assert "several stages of loads in flight" in conversation(model, 1)[-1].content
    assert "larger-tiles" in model.asked[1][-1].content


def test_the_same_code_again_is_not_repaired() -> None:
    model, _ = play([NAIVE, SHARED, SHARED, NAIVE + "# own\n"], [right(0.1), WRONG, WRONG, right(0.2)], 5)
    assert model.purposes == ["answer", "answer", "diagnosis", "answer", "answer"]


def test_a_first_answer_that_fails_is_repaired_before_anything_else() -> None:
    model, trajectory = play([NAIVE, NAIVE + "# mended\n"], [WRONG, right(0.1)], 3)
    assert model.purposes == ["answer", "diagnosis", "answer"]
    assert trajectory.best is not None
    assert "last right answer" not in conversation(model, 1)[-1].content


def test_a_hidden_failure_is_diagnosed_without_a_word_of_it() -> None:
    late = make_verdict(Status.RUNTIME_ERROR, stage=Stage.HIDDEN, message="SECRET", detail="SECRET", output="SECRET")
    model, _ = play([NAIVE, SHARED, SHARED + "# 1\n"], [right(0.1), late, right(0.2)], 5)
    text = "\n".join(message.content for asked in model.asked for message in asked)
    assert "WRONG_HIDDEN: a hidden check failed" in text
    assert "SECRET" not in text


@pytest.mark.parametrize("calls", range(1, 8))
def test_it_asks_no_more_than_its_calls(calls: int) -> None:
    model, _ = play([NAIVE, SHARED], [right(0.1), WRONG], calls)
    assert len(model.asked) <= calls


def test_it_stops_at_a_target_and_where_the_context_ends() -> None:
    model, _ = play([NAIVE], [right(3.0)], 9, stop=Stop(target_speedup=2.0))
    assert len(model.asked) == 1
    env = SingleTurnEnv(load_problem(PROBLEM), evaluator=cast(Evaluator, ScriptedEvaluator([right(1.0)])))
    trajectory = Skills(ScriptedModel([answer(NAIVE), ContextWindowError("long")]), 5).run(env, PROBLEM)
    assert len(trajectory.turns) == 1


def test_samples_are_independent_attempts() -> None:
    model, trajectory = play([NAIVE], [right(0.1)], 2, n=2)
    assert [(turn.sample, turn.index) for turn in trajectory.turns] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert conversation(model, 2) == conversation(model, 0)


# -- memory and prompts -----------------------------------------------------------------------------------------------


def turn(code: str | None = "x = 1\n", verdict: Verdict | None = None) -> Turn:
    return Turn(0, 0, "# Task", "An answer.", code, verdict or right(1.5), 0.6, feedback="PASSED: well done.\nMore.")


def test_memory_spends_what_did_not_help_last() -> None:
    memory = Memory()
    memory.record("a", turn(verdict=right(1.0)), [turn(verdict=right(1.5))])
    memory.record("b", turn(verdict=right(1.5)), [turn(verdict=WRONG), turn(verdict=WRONG)])
    memory.record("c", turn(verdict=right(1.5)), [turn(verdict=right(1.501))])
    memory.record(None, turn(verdict=right(1.5)), [turn(verdict=WRONG)])
    assert memory.spent == {"b", "c"}
    assert memory.moves[1] == Move("b", 1.5, None, "WRONG_VALUE", 2)
    memory.record("a", turn(verdict=right(1.5)), [turn(verdict=WRONG)])
    assert memory.spent == {"a", "b", "c"}


def test_repetitions_are_seen_through_spaces() -> None:
    assert is_repetition("x  =  1\n\n", [turn()])
    assert not is_repetition("x = 2\n", [turn()])
    assert not is_repetition(None, [turn(code=None)])


SHOWN = "2.1x [2, 2.2] (Some GPU)"
SKILL, UNMEASURED = (
    next(skill for skill in load_library() if skill.id == name).model_copy(update={"shown": shown})
    for name, shown in (("wide-access", SHOWN), ("fuse-norm", None))
)
FEATURES = {"source.backend": "cuda", "profile.bandwidth_share": 0.8125, "source.threads": 256, "source.chunks": False}
MOVES = [
    Move(None, None, 1.2, "PASSED"), Move("row-in-registers", 1.2, 1.5, "PASSED"),
    Move("no-copies", 1.5, None, "WRONG_VALUE", 3), Move(None, 1.5, 1.5, "PASSED"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("skills_plan-two", {"skills": [UNMEASURED, SKILL], "features": FEATURES, "base": turn(), "moves": MOVES}),
        (
            "skills_write-skill",
            {
                "task": "# Task", "base": turn(), "skill": SKILL, "features": FEATURES, "moves": MOVES,
                "pair": {"before": "before = 1\n", "after": "after = 1\n"},
            },
        ),
        (
            "skills_write-own",
            {"task": "# Task", "base": turn(), "skill": None, "features": FEATURES, "moves": [], "pair": {}},
        ),
        ("skills_diagnose-first", {"task": "# Task", "turn": turn(), "earlier": []}),
        ("skills_diagnose-again", {"task": "# Task", "turn": turn(), "earlier": ["It is wrong.", "Still wrong."]}),
        ("skills_repair-first", {"turn": turn(), "diagnosis": "D", "skill": None, "base": None}),
        ("skills_repair-skill", {"turn": turn(), "diagnosis": "", "skill": SKILL, "base": turn()}),
    ],
)  # fmt: skip
def test_the_roles_texts_are_the_golden_ones(name: str, values: dict[str, Any]) -> None:
    golden(f"{name}.md", render(f"{name.split('-')[0]}.j2", **values))
