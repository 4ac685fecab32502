"""Vector environments: many episodes at once, problems in turn, and a fault that costs one episode and no reward."""

from __future__ import annotations

import math
import threading
import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import kbenv  # noqa: F401  registers the environments
from kbenv.errors import SandboxError, UsageError
from kbenv.reward import verified
from kbenv.vector import MultiTurnVectorEnv, SingleTurnVectorEnv
from kbenv.verdict import Status, Verdict
from tests.devices import Answer, Device, pool_of, right
from tests.fakes import make_problem, make_verdict
from tests.models import make_answer

IDS = ["kbenv/SingleTurn-v0", "kbenv/MultiTurn-v0"]
PROBLEMS = [make_problem(id=f"core/level1/{name}") for name in ("a", "b", "c")]


def single(answer: Answer = right, count: int = 1, **options: Any) -> SingleTurnVectorEnv:
    pool = pool_of(*(Device(f"cuda:{n}", answer) for n in range(count)))
    return SingleTurnVectorEnv(pool=pool, **({"num_envs": 2, "problem": PROBLEMS[0]} | options))


def answers(*numbers: int) -> tuple[str, ...]:
    return tuple(make_answer(number) for number in numbers)


@pytest.mark.parametrize("id", IDS)
def test_make_vec_makes_them_without_a_warning(id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gymnasium.make_vec(id, num_envs=3, problem=PROBLEMS[0], pool=pool_of(Device("cuda:0", right)))
        assert isinstance(envs.unwrapped, SingleTurnVectorEnv if "Single" in id else MultiTurnVectorEnv)
        observations, infos = envs.reset(seed=1)
        assert observations in envs.observation_space
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        actions = answers(0, 1, 2)
        assert actions in envs.action_space
        observations, rewards, _, truncated, infos = envs.step(actions)
        assert observations in envs.observation_space
        assert rewards.tolist() == [verified(make_verdict())] * 3
        assert not truncated.any()
        assert [verdict.status for verdict in infos["verdict"]] == [Status.PASSED] * 3
        assert list(infos["fault"]) == [None] * 3
        envs.close()


def test_all_answers_of_a_step_are_judged_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=10)

    def answer(device: Device, source: str) -> Verdict:
        together.wait()
        return right(device, source)

    envs = single(answer, count=3, num_envs=3)
    envs.reset()
    assert envs.step(answers(0, 1, 2))[1].tolist() == [verified(make_verdict())] * 3


def test_episodes_play_the_problems_in_turn() -> None:
    envs = single(num_envs=2, problem=None, problems=PROBLEMS)
    _, infos = envs.reset()
    assert list(infos["problem"]) == ["core/level1/a", "core/level1/b"]
    _, _, terminated, _, infos = envs.step(answers(0, 1))
    assert terminated.tolist() == [True, True]
    observations, rewards, terminated, _, infos = envs.step(answers(0, 1))  # the step that starts the next episodes
    assert list(infos["problem"]) == ["core/level1/c", "core/level1/a"]
    assert rewards.tolist() == [0.0, 0.0]
    assert not terminated.any()
    assert all("class Model" in observation for observation in observations)
    assert envs.reset()[1]["problem"].tolist() == ["core/level1/a", "core/level1/b"]


def test_a_fault_ends_one_episode_without_a_reward_and_leaves_the_others() -> None:
    def answer(device: Device, source: str) -> Verdict:
        if "number = 1" in source:
            raise SandboxError("the machine coughed")
        return right(device, source)

    envs = single(answer)
    envs.reset()
    _, rewards, terminated, truncated, infos = envs.step(answers(0, 1))
    assert rewards[0] == verified(make_verdict())
    assert math.isnan(rewards[1])
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert list(infos["fault"]) == [None, "the machine coughed"]
    assert infos["verdict"][1] is None
    _, rewards, terminated, truncated, _ = envs.step(answers(0, 0))
    assert rewards.tolist() == [0.0, 0.0]
    assert not (terminated | truncated).any()


def test_places_end_their_conversations_by_themselves() -> None:
    envs = MultiTurnVectorEnv(2, problem=PROBLEMS[0], pool=pool_of(Device("cuda:0", right)), max_turns=3)
    envs.reset()
    observations, _, terminated, _, infos = envs.step((make_answer(0), "no code"))
    assert not terminated.any()
    assert [verdict.status for verdict in infos["verdict"]] == [Status.PASSED, Status.FORMAT_ERROR]
    observations, rewards, terminated, _, infos = envs.step(("<done/>", make_answer(1)))
    assert terminated.tolist() == [True, False]
    assert rewards.tolist() == [0.0, verified(make_verdict())]
    assert observations[0] == ""
    observations, _, terminated, _, infos = envs.step(("ignored", make_answer(2)))
    assert terminated.tolist() == [False, True]
    assert "class Model" in observations[0]
    assert infos["turn"].tolist() == [0, 3]


def test_a_step_needs_a_reset_first() -> None:
    with pytest.raises(ResetNeeded):
        single().step(answers(0, 1))


def test_a_pool_that_was_given_stays_open_and_an_own_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device("cuda:0", right)
    pool = pool_of(device)
    SingleTurnVectorEnv(problem=PROBLEMS[0], pool=pool).close()
    assert not device.aborted.is_set()
    pool.close()
    made: list[Device] = []

    def make(**options: Any) -> Device:
        made.append(Device(options.get("device", "auto"), right))
        assert options["protocol"] == "kernelbench"
        return made[-1]

    monkeypatch.setattr("kbenv.pool.Evaluator", make)
    monkeypatch.setattr("kbenv.vector.Evaluator", make)
    SingleTurnVectorEnv(problem=PROBLEMS[0], protocol="kernelbench", device="cpu").close()
    SingleTurnVectorEnv(problem=PROBLEMS[0], protocol="kernelbench", devices=["cpu", "cpu"]).close()
    assert len(made) == 3
    assert all(device.closed for device in made)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"problem": None}, "one problem"),
        ({"problems": PROBLEMS}, "one problem"),
        ({"problem": None, "problems": []}, "one problem"),
        ({"devices": ["cpu"]}, "a pool, or devices"),
        ({"protocol": "verified"}, "a pool, or devices"),
        ({"reward": "tiers"}, "compiled_baseline"),
        ({"reward": "gold"}, "reward must be one of"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_what_excludes_each_other_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        single(**options)


def test_both_one_device_and_several_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        SingleTurnVectorEnv(problem=PROBLEMS[0], device="cpu", devices=["cpu"])


def test_render_is_a_line_a_place() -> None:
    envs = single(render_mode="ansi")
    envs.reset()
    envs.step(answers(0, 1))
    assert [line.split(":")[0] for line in envs.render() or ()] == ["core/level1/a"] * 2
    assert single().render() is None
