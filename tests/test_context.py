"""What is sent again of a conversation: by policy, and within the budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.agents import Message, Turn
from kbenv.agents.context import POLICIES, Context, Policy, estimate_tokens
from kbenv.agents.model import ContextWindowError
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.scripted import ScriptedModel
from kbenv.env import MultiTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.verdict import Status, Verdict
from tests.fakes import ScriptedEvaluator, make_problem, make_verdict
from tests.models import make_answer

TASK = [Message("system", "You write kernels."), Message("user", "# Task")]


def words(messages: Sequence[Message]) -> int:
    return sum(len(message.content.split()) for message in messages)


def make_turn(number: int, verdict: Verdict, answer: str | None = None) -> Turn:
    text = make_answer(number) if answer is None else answer
    code = None if answer == "" else f"number = {number}\n"
    return Turn(0, number, "o", text, code, verdict, 0.0, feedback=f"feedback {number}")


def make_turns(count: int, best: int | None = None) -> list[Turn]:
    wrong, right = make_verdict(Status.WRONG_VALUE), make_verdict(speedup=2.0)
    return [make_turn(number, right if number == best else wrong) for number in range(count)]


def kept(messages: Sequence[Message]) -> list[int]:
    """The numbers of the turns whose answers are in a conversation."""
    assert [message.role for message in messages[:2]] == ["system", "user"]
    assert all((message.role == "assistant") == (place % 2 == 0) for place, message in enumerate(messages[2:])), (
        "roles take turns"
    )
    return [int(message.content.split("number = ")[1].split("\n")[0]) for message in messages if message.role[0] == "a"]


@pytest.mark.parametrize(
    ("policy", "best", "expected"),
    [
        ("full", 0, [0, 1, 2, 3, 4, 5]),
        ("last", 0, [4, 5]),
        ("best-last", 1, [1, 4, 5]),
        ("best-last", 4, [4, 5]),
        ("best-last", None, [4, 5]),
    ],
)
def test_a_policy_keeps_what_it_says(policy: Policy, best: int | None, expected: list[int]) -> None:
    messages = Context(policy, k=2).compose(TASK, make_turns(6, best))
    assert kept(messages) == expected
    assert messages[-1].content == "feedback 5"


def test_what_is_left_out_is_said_before_the_gap() -> None:
    messages = Context("best-last", k=2).compose(TASK, make_turns(6, best=1))
    assert messages[1].content == "# Task\n\n(Answer 1 is left out here.)"
    assert messages[3].content == "feedback 1\n\n(Answers 3 to 4 are left out here.)"
    assert Context().compose(TASK, make_turns(2))[1].content == "# Task"


def test_a_summary_stands_for_what_it_sums_up() -> None:
    context = Context("summary", k=2)
    turns = make_turns(5)
    assert context.to_summarise(turns[:4], 0) == ()
    assert list(context.to_summarise(turns, 0)) == turns[:3]
    messages = context.compose(TASK, turns, "Nothing worked.", 3)
    assert kept(messages) == [3, 4]
    assert "(Answers 1 to 3 are left out here.)" in messages[1].content
    assert messages[1].content.endswith("Nothing worked.")


@pytest.mark.parametrize(("best", "notes_at"), [(0, 3), (1, 1)])
def test_a_summary_does_not_cost_the_best_answer(best: int, notes_at: int) -> None:
    messages = Context("summary", k=2).compose(TASK, make_turns(5, best), "Nothing else worked.", 3)
    assert kept(messages) == [best, 3, 4]
    assert [number for number, message in enumerate(messages) if "Nothing else worked." in message.content] == [
        notes_at
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_oldest_goes_first_and_the_best_last_when_tokens_run_out(policy: Policy) -> None:
    turns = make_turns(6, best=2)
    whole = words(Context(policy, k=4).compose(TASK, turns))
    seen = []
    for limit in range(whole, 0, -1):
        context = Context(policy, k=4, max_tokens=limit, count=words)
        try:
            messages = context.compose(TASK, turns)
        except ContextWindowError:
            break
        assert words(messages) <= limit
        if not seen or seen[-1] != kept(messages):
            seen.append(kept(messages))
    assert seen[-1] == [5]
    assert seen[-2] == [2, 5]
    assert all(2 in numbers for numbers in seen[:-1])


def test_what_cannot_fit_says_what_to_do() -> None:
    with pytest.raises(ContextWindowError, match="context may have 1: raise --context-tokens"):
        Context(max_tokens=1, count=words).compose(TASK, make_turns(2))


def test_where_nothing_else_fits_of_the_last_answer_the_code_is_sent() -> None:
    turn = make_turn(0, make_verdict(Status.WRONG_VALUE), "Let me explain. " * 100 + make_answer(0))
    messages = Context(max_tokens=60, count=words).compose(TASK, [turn])
    assert messages[2].content == "```python\nnumber = 0\n```"


def test_an_empty_answer_is_sent_as_something() -> None:
    messages = Context().compose(TASK, [make_turn(0, make_verdict(Status.FORMAT_ERROR), "")])
    assert messages[2].content.strip()


def test_the_estimate_grows_with_the_text() -> None:
    assert 250 < estimate_tokens([Message("user", "x" * 1000)]) < 400


@given(
    st.sampled_from(POLICIES),
    st.integers(1, 4),
    st.integers(0, 9),
    st.integers(0, 9) | st.none(),
    st.integers(1, 400) | st.none(),
)
def test_whatever_is_kept_is_within_the_budget_in_order_and_ends_with_the_last(
    policy: Policy, k: int, count: int, best: int | None, limit: int | None
) -> None:
    turns = make_turns(count, best)
    try:
        messages = Context(policy, k, limit, words).compose(TASK, turns)
    except ContextWindowError:
        assert limit is not None
        return
    numbers = kept(messages)
    assert numbers == sorted(set(numbers))
    assert not turns or numbers[-1] == count - 1
    assert limit is None or words(messages) <= limit


def play(model: ScriptedModel, verdicts: Sequence[Verdict], context: Context, **options: Any) -> Any:
    env = MultiTurnEnv(make_problem(), evaluator=cast(Evaluator, ScriptedEvaluator(verdicts)), max_turns=20)
    return MultiTurn(model, turns=options.pop("turns", 8), context=context, **options).run(env, "core/level1/relu")


def test_a_conversation_forgets_by_its_policy() -> None:
    model = ScriptedModel([make_answer(number) for number in range(8)])
    verdicts = [make_verdict(Status.WRONG_VALUE), make_verdict(speedup=3.0), *[make_verdict(speedup=1.0)] * 6]
    trajectory = play(model, verdicts, Context("best-last", k=2))
    assert [kept(messages) for messages in model.asked] == [
        [], [0], [0, 1], [1, 2], [1, 2, 3], [1, 3, 4], [1, 4, 5], [1, 5, 6],
    ]  # fmt: skip
    assert trajectory.turns[7].messages == model.asked[7]


def test_summaries_are_asked_for_when_there_is_enough_to_sum_up_and_build_on_each_other() -> None:
    numbers = iter(range(100))

    def reply(messages: Sequence[Message]) -> str:
        if messages[0].role == "user":
            return "second notes" if "first notes" in messages[0].content else "first notes"
        return make_answer(next(numbers))

    model = ScriptedModel([reply])
    trajectory = play(model, [make_verdict(Status.WRONG_VALUE)], Context("summary", k=2), turns=9)
    assert [index for index, purpose in enumerate(model.purposes) if purpose == "summary"] == [5, 9]
    assert len(trajectory.turns) == 9
    first, second = model.asked[5][0].content, model.asked[9][0].content
    assert "## Answer 1\n" in first
    assert "## Answer 4\n" not in first
    assert "first notes" in second
    assert "## Answer 4\n" in second
    last = [messages for messages in model.asked if messages[0].role == "system"][-1]
    assert "second notes" in last[1].content
    assert kept(last) == [6, 7]


def test_calls_for_summaries_count() -> None:
    model = ScriptedModel([make_answer()])
    trajectory = play(model, [make_verdict(Status.WRONG_VALUE)], Context("summary", k=1), turns=9, calls=6)
    assert len(model.asked) == 6
    assert len(trajectory.turns) < 6


def test_tokens_of_a_conversation_are_a_budget() -> None:
    model = ScriptedModel([make_answer()])  # 15 tokens a call
    trajectory = play(model, [make_verdict(Status.WRONG_VALUE)], Context(), tokens=40)
    assert len(trajectory.turns) == 3
