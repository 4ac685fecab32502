"""Whole episodes with the real judge, in which what an agent reads of one answer is what leads it to the next.

The model is a script of rules on the last message, so that an agent whose policy did not bring it the right feedback
would repeat its first answer, or stop. On a GPU: `pytest -m gpu tests/judge/test_episodes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbenv.agents import Trajectory
from kbenv.agents.catalog import Settings, get_agent
from kbenv.agents.context import Context
from kbenv.agents.replay import ReplayModel, load_replay
from kbenv.agents.stopping import Stop
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.evaluator import Evaluator
from kbenv.feedback import QUOTE_PREFIX
from kbenv.protocol import get_protocol

PROBLEM = "core/level1/relu"
SHIPPED = Path(__file__).parents[2] / "examples" / "replay" / PROBLEM
MODEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
BOUNDED = MODEL + "        return x.clamp(0.0, 10.0)\n"  # right for what get_inputs draws, and not for three times that
SLOW = MODEL + "        for _ in range(20):\n            y = torch.relu(x.clone())\n        return y\n"
ANSWERS = {
    "cpu": {"broken.md": "typo.md", "fast.md": "c_parallel.md"},
    "cuda:0": {"broken.md": "cuda_typo.md", "fast.md": "triton.md"},
}
RULES = """
[[rule]]
when = '^# Right answers so far[\\s\\S]*^## (0\\.0|\\S+e-)'
answer = ["fast.md"]
[[rule]]
when = '^# Right answers so far'
answer = ["done.md"]
[[rule]]
when = 'Make one change to it: operands as they lie'
answer = ["fast.md"]
[[rule]]
when = ''
purpose = "summary"
answer = ["notes.md"]
[[rule]]
when = '^# Task'
answer = ["identity.md"]
"""
RULES += "".join(
    f"""
[[rule]]
when = '{status}'
purpose = "{purpose}"
answer = ["{advice}"]
"""
    for purpose in ("reflection", "diagnosis")
    for status, advice in (
        ("^WRONG_VALUE", "advice_sign.md"),
        ("^COMPILE_ERROR", "advice_semicolon.md"),
        ("^WRONG_HIDDEN: a hidden check failed$", "advice_bound.md"),
    )
)
DIRECT = """
[[rule]]
when = '^WRONG_VALUE'
answer = ["broken.md"]
[[rule]]
when = '^COMPILE_ERROR'
answer = ["bounded.md"]
[[rule]]
when = '^WRONG_HIDDEN: a hidden check failed$'
answer = ["slow.md"]
[[rule]]
when = '^Speedup over the PyTorch reference: (0\\.0|\\S+e-)'
answer = ["fast.md"]
[[rule]]
when = '^(PASSED|FORMAT_ERROR)'
answer = ["done.md"]
"""
ADVISED = """
[[rule]]
when = 'the sign'
answer = ["broken.md"]
[[rule]]
when = 'a semicolon'
answer = ["bounded.md"]
[[rule]]
when = 'upper bound'
answer = ["slow.md"]
"""
STEPS = ["WRONG_VALUE", "COMPILE_ERROR", "WRONG_HIDDEN", "PASSED", "PASSED"]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    """Judges each source once for all agents."""
    protocol = get_protocol("verified").with_effort("quick")
    with Evaluator(protocol=protocol, device=request.param, sandbox="process", cache=True) as evaluator:
        yield evaluator


def make_model(folder: Path, device: str, rules: str) -> ReplayModel:
    place = folder / PROBLEM
    place.mkdir(parents=True)
    (place / "script.toml").write_text(RULES + rules)
    texts = {
        "identity.md": (SHIPPED / "identity.md").read_text(),
        "bounded.md": f"```python\n{BOUNDED}```\n",
        "slow.md": f"```python\n{SLOW}```\n",
        "done.md": "Nothing left.\n<done/>\n",
        "advice_sign.md": "It returns its input: the sign is lost on negative values.",
        "advice_semicolon.md": "The compiler misses a semicolon.",
        "advice_bound.md": "Larger inputs may meet an upper bound that has no place in a ReLU.",
        "notes.md": "Returning the input is wrong.",
    } | {name: (SHIPPED / file).read_text() for name, file in ANSWERS[device].items()}
    for name, text in texts.items():
        (place / name).write_text(text)
    return load_replay(folder, PROBLEM)


def play(
    agent: str, evaluator: Evaluator, folder: Path, *, settings: Settings, rules: str = DIRECT, **options: Any
) -> Trajectory:
    kind = get_agent(agent)
    model = make_model(folder, evaluator.device, rules)
    env = (
        SingleTurnEnv(PROBLEM, evaluator=evaluator, **options)
        if kind.episode == "single"
        else MultiTurnEnv(PROBLEM, max_turns=kind.turns(settings), evaluator=evaluator, **options)
    )
    return kind.make(model, settings).run(env, PROBLEM)


def statuses(trajectory: Trajectory) -> list[str]:
    return [turn.verdict.status.value if turn.verdict is not None else "done" for turn in trajectory.turns]


def speedups(trajectory: Trajectory) -> list[float]:
    return [turn.speedup for turn in trajectory.turns if turn.speedup is not None]


def assert_nothing_hidden_is_told(turns: Sequence[Any]) -> None:
    """The feedback on the hidden failure is one line that says no more than that."""
    (turn,) = [turn for turn in turns if turn.verdict is not None and turn.verdict.status.value == "WRONG_HIDDEN"]
    assert turn.feedback.split("\n")[0] == "WRONG_HIDDEN: a hidden check failed"
    failed = [check.name for check in turn.verdict.checks if check.passed is False]
    assert failed
    for word in (*failed, "D2", "factor", QUOTE_PREFIX, "max", "index"):
        assert word not in turn.feedback


@pytest.mark.parametrize("policy", ["full", "last", "best-last", "summary"])
def test_a_conversation_mends_what_its_feedback_names_under_every_context_policy(
    evaluator: Evaluator, tmp_path: Path, policy: Any
) -> None:
    trajectory = play("multi-turn", evaluator, tmp_path, settings=Settings(turns=8, context=Context(policy, k=1)))
    assert statuses(trajectory) == [*STEPS, "done"]
    slow, fast = speedups(trajectory)
    assert 5 * slow < fast
    assert_nothing_hidden_is_told(trajectory.turns)
    answers = [sum(message.role == "assistant" for message in turn.messages) for turn in trajectory.turns]
    most = {"full": 5, "last": 1, "best-last": 1, "summary": 2}[policy]
    assert max(answers) == most


def test_a_search_refines_its_best_by_what_became_of_it(evaluator: Evaluator, tmp_path: Path) -> None:
    settings = Settings(calls=9, parents=2, children=1)
    trajectory = play("search", evaluator, tmp_path, settings=settings)
    wrong, broken, hidden, right, _ = STEPS
    assert statuses(trajectory) == [wrong, wrong, broken, broken, hidden, right, broken, right, right]
    # The fast one comes of the slow one, that of the one that a hidden check refused, and so on to the first.
    line = [trajectory.turns[7]]
    while line[-1].parents:
        line.append(trajectory.turns[line[-1].parents[0]])
    assert statuses(Trajectory("", "", "", tuple(line[::-1]))) == STEPS
    assert trajectory.best is trajectory.turns[7]
    assert_nothing_hidden_is_told(trajectory.turns)


def test_a_reflecting_agent_follows_its_reviewer_and_then_its_optimiser(evaluator: Evaluator, tmp_path: Path) -> None:
    settings = Settings(calls=8, stop=Stop(target_speedup=0.1))
    trajectory = play("reflect", evaluator, tmp_path, settings=settings, rules=ADVISED)
    assert statuses(trajectory) == STEPS
    assert "upper bound" in trajectory.turns[3].observation
    assert trajectory.turns[4].observation.count("# Right answers so far") == 1
    slow, fast = speedups(trajectory)
    assert 5 * slow < fast
    assert_nothing_hidden_is_told(trajectory.turns)


def test_the_skills_agent_follows_its_diagnoser_and_then_the_skill_that_its_features_choose(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")
    settings = Settings(calls=8, stop=Stop(target_speedup=0.1))
    trajectory = play("skills", evaluator, tmp_path, settings=settings, rules=ADVISED)
    assert statuses(trajectory) == STEPS
    assert "A diagnosis of it:" in trajectory.turns[1].observation
    assert "upper bound" in trajectory.turns[3].observation
    assert "- source.copies: 1\n" in trajectory.turns[4].observation  # of the slow answer, read off its source
    slow, fast = speedups(trajectory)
    assert 5 * slow < fast
    assert_nothing_hidden_is_told(trajectory.turns)


def test_without_feedback_the_same_model_gets_nowhere(evaluator: Evaluator, tmp_path: Path) -> None:
    rules = "[[rule]]\nwhen = '^Your answer was judged'\nanswer = ['identity.md']\n"
    trajectory = play(
        "multi-turn", evaluator, tmp_path, settings=Settings(turns=4), rules=DIRECT + rules, execution_feedback=False
    )
    assert statuses(trajectory) == ["WRONG_VALUE"] * 4
