"""The environments keep Gymnasium's contract, and never turn a fault of the machine into a reward."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import kbenv.env
from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.errors import ProblemNotFoundError, SandboxError, UsageError
from kbenv.feedback import render_feedback
from kbenv.prompt import PromptOptions
from kbenv.reward import kevin, verified
from kbenv.spaces import TextSpace
from kbenv.verdict import Status, Verdict
from tests.fakes import SUBMISSION_SOURCE, ScriptedEvaluator, make_problem, make_verdict

ANSWER = f"Here it is:\n```python\n{SUBMISSION_SOURCE}```\n"
IDS = ["kbenv/SingleTurn-v0", "kbenv/MultiTurn-v0"]


def single(*verdicts: Verdict | Exception, **options: Any) -> SingleTurnEnv:
    return SingleTurnEnv(make_problem(), evaluator=ScriptedEvaluator(verdicts), **options)  # type: ignore[arg-type]


def multi(*verdicts: Verdict | Exception, **options: Any) -> MultiTurnEnv:
    return MultiTurnEnv(make_problem(), evaluator=ScriptedEvaluator(verdicts), **options)  # type: ignore[arg-type]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEvaluator]:
    """The scripted evaluators that environments make for themselves in place of real ones."""
    evaluators: list[ScriptedEvaluator] = []

    def make(**options: Any) -> ScriptedEvaluator:
        evaluators.append(ScriptedEvaluator(**options))
        return evaluators[-1]

    monkeypatch.setattr(kbenv.env, "Evaluator", make)
    return evaluators


@pytest.mark.parametrize("id", IDS)
def test_check_env_finds_nothing_to_warn_of(id: str, made: list[ScriptedEvaluator]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(id, problem="core/level1/relu")
        check_env(env.unwrapped)
        env.close()


@pytest.mark.parametrize("id", IDS)
def test_an_episode_through_make_gives_no_warning(id: str, made: list[ScriptedEvaluator]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gymnasium.make(id, problem="core/level1/relu", device="cpu", render_mode="ansi") as env:
            observation, _ = env.reset(seed=3)
            assert "class Model" in observation
            observation, reward, _, _, info = env.step(ANSWER)
            assert observation.startswith("PASSED: ")
            assert reward == verified(info["verdict"])
            assert "PASSED" in str(env.render())


def test_make_accepts_an_evaluator_and_uses_that_very_one() -> None:
    evaluator = ScriptedEvaluator()
    env = gymnasium.make("kbenv/SingleTurn-v0", problem=make_problem(), evaluator=evaluator)
    env.reset()
    env.step(ANSWER)
    env.close()
    assert evaluator.sources == [SUBMISSION_SOURCE]
    assert not evaluator.closed


@pytest.mark.parametrize("make", [single, multi])
def test_spaces_are_text(make: Any) -> None:
    env = make()
    assert isinstance(env.observation_space, TextSpace)
    assert isinstance(env.action_space, TextSpace)


def test_reset_returns_the_prompt_and_empty_bookkeeping() -> None:
    observation, info = single().reset()
    assert "torch.relu(x)" in observation
    assert info == {"problem": "core/level1/relu", "turn": 0, "verdict": None, "best": None, "judged": False}


def test_the_code_alone_reaches_the_evaluator() -> None:
    env = single()
    env.reset()
    env.step(ANSWER)
    assert env.evaluator.sources == [SUBMISSION_SOURCE]
    assert env.evaluator.problems == [env.problem]


def test_single_turn_ends_after_one_answer() -> None:
    verdict = make_verdict(Status.WRONG_VALUE)
    env = single(verdict)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(ANSWER)
    assert observation == render_feedback(verdict)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info == {"problem": "core/level1/relu", "turn": 1, "verdict": verdict, "best": None, "judged": True}


@pytest.mark.parametrize("make", [single, multi])
def test_an_answer_without_code_is_a_format_error(make: Any) -> None:
    env = make()
    env.reset()
    observation, reward, _, _, info = env.step("I give up.")
    assert info["verdict"].status is Status.FORMAT_ERROR
    assert observation.startswith("FORMAT_ERROR: ")
    assert reward == 0.0
    assert env.evaluator.sources == []
    assert len(env.evaluator.format_errors) == 1


@pytest.mark.parametrize("make", [single, multi])
def test_step_before_reset_is_refused(make: Any) -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        make().step(ANSWER)


@pytest.mark.parametrize("make", [single, multi])
def test_step_after_the_end_is_refused_until_reset(make: Any) -> None:
    env = make()
    env.reset()
    assert env.step(f"{ANSWER}<done/>")[2]
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(ANSWER)
    env.reset()
    env.step(ANSWER)


@pytest.mark.parametrize("make", [single, multi])
def test_a_fault_of_the_machine_is_raised_and_the_turn_can_be_tried_again(make: Any) -> None:
    env = make(SandboxError("the device fell off"), make_verdict())
    env.reset()
    with pytest.raises(SandboxError, match="fell off"):
        env.step(ANSWER)
    *_, info = env.step(ANSWER)
    assert info["turn"] == 1
    assert info["verdict"].credited


def test_the_reward_is_chosen_by_name() -> None:
    verdict = make_verdict(speedup=3.0)
    env = single(verdict, reward="kevin")
    env.reset()
    assert env.step(ANSWER)[1] == kevin(verdict) == pytest.approx(3.3)


def test_multi_turn_rewards_every_turn_and_ends_at_max_turns() -> None:
    verdicts = [make_verdict(Status.COMPILE_ERROR), make_verdict(speedup=2.0), make_verdict(speedup=0.5)]
    env = multi(*verdicts, max_turns=3)
    env.reset()
    steps = [env.step(ANSWER) for _ in range(3)]
    assert [reward for _, reward, _, _, _ in steps] == [verified(verdict) for verdict in verdicts]
    assert [terminated for _, _, terminated, _, _ in steps] == [False, False, True]
    assert not any(truncated for _, _, _, truncated, _ in steps)
    assert [info["turn"] for *_, info in steps] == [1, 2, 3]
    assert [info["verdict"] for *_, info in steps] == verdicts


def test_best_is_the_fastest_credited_verdict_so_far() -> None:
    fast = make_verdict(speedup=2.0)
    right = make_verdict(Status.NO_CUSTOM_KERNEL, speedup=9.0)
    env = multi(make_verdict(Status.TIMEOUT), right, make_verdict(speedup=1.5), fast, make_verdict(speedup=1.9))
    env.reset()
    bests = [env.step(ANSWER)[4]["best"] for _ in range(5)]
    assert bests == [None, None, make_verdict(speedup=1.5), fast, fast]
    _, info = env.reset()
    assert info["best"] is None


def test_an_unfinished_episode_is_told_its_turn_and_its_best() -> None:
    env = multi(make_verdict(speedup=2.0), make_verdict(Status.WRONG_HIDDEN), max_turns=3)
    env.reset()
    env.step(ANSWER)
    observation, *_ = env.step(ANSWER)
    lines = observation.split("\n")
    assert lines[0] == "WRONG_HIDDEN: a hidden check failed"
    assert "Best so far: 2x." in lines
    assert "turn 2 of 3" in observation
    assert "<done/>" in observation
    last, *_ = env.step(ANSWER)
    assert last == "WRONG_HIDDEN: a hidden check failed"


def test_done_with_code_is_judged_and_ends_the_episode() -> None:
    env = multi(make_verdict(speedup=2.0))
    env.reset()
    observation, reward, terminated, _, info = env.step(f"{ANSWER}\n<done/>")
    assert terminated
    assert reward == verified(info["verdict"])
    assert observation == render_feedback(info["verdict"])


def test_done_alone_ends_the_episode_without_a_verdict() -> None:
    verdict = make_verdict(speedup=2.0)
    env = multi(verdict)
    env.reset()
    env.step(ANSWER)
    observation, reward, terminated, truncated, info = env.step("I am content.\n<done/>")
    assert (observation, reward, terminated, truncated) == ("", 0.0, True, False)
    assert info == {"problem": "core/level1/relu", "turn": 2, "verdict": verdict, "best": verdict, "judged": False}
    assert env.evaluator.format_errors == []


def test_done_as_the_first_answer_has_no_verdict() -> None:
    env = multi()
    env.reset()
    *_, terminated, _, info = env.step("<done/>")
    assert terminated
    assert info["verdict"] is None


def test_single_turn_knows_no_done() -> None:
    env = single()
    env.reset()
    assert env.step("<done/>")[4]["verdict"].status is Status.FORMAT_ERROR


def test_an_evaluator_of_its_own_gets_the_options_and_is_closed(made: list[ScriptedEvaluator]) -> None:
    env = SingleTurnEnv("core/level1/relu", device="cpu", backend="cpp")
    assert (made[0].device, made[0].backend) == ("cpu", "cpp")
    env.close()
    assert made[0].closed


def test_a_borrowed_evaluator_stays_open() -> None:
    env = single()
    env.close()
    assert not env.evaluator.closed


def test_an_evaluator_and_its_options_are_not_both_taken() -> None:
    with pytest.raises(UsageError, match="not both; found an evaluator and device"):
        single(device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "fast"}, "reward must be one of"),
        ({"render_mode": "human"}, "render_mode must be"),
        ({"max_turns": 0}, "max_turns must be at least 1; found 0"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        multi(**options)


def test_an_unknown_problem_is_refused_before_an_evaluator_is_made(made: list[ScriptedEvaluator]) -> None:
    with pytest.raises(ProblemNotFoundError):
        gymnasium.make("kbenv/SingleTurn-v0", problem="core/level1/nothing")
    assert made == []


def test_render_tells_the_last_verdict_on_one_line() -> None:
    env = multi(make_verdict(speedup=2.0), make_verdict(Status.TIMEOUT), render_mode="ansi")
    env.reset()
    assert env.render() == "core/level1/relu: no verdict yet"
    env.step(ANSWER)
    assert env.render() == "core/level1/relu: PASSED 2.00x [1.90, 2.10], 1 ms against 2 ms"
    env.step(ANSWER)
    assert env.render() == "core/level1/relu: TIMEOUT"
    assert multi().render() is None


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_batch_the_text(mode: AutoresetMode) -> None:
    envs = SyncVectorEnv([lambda: multi(max_turns=2), lambda: multi(max_turns=3)], autoreset_mode=mode)
    observations, infos = envs.reset(seed=1)
    assert len(observations) == 2
    assert all("class Model" in observation for observation in observations)
    observations, rewards, terminated, _, infos = envs.step((ANSWER, "no code"))
    assert observations in envs.observation_space
    assert rewards.tolist() == [verified(make_verdict()), 0.0]
    assert terminated.tolist() == [False, False]
    assert [verdict.status for verdict in infos["verdict"]] == [Status.PASSED, Status.FORMAT_ERROR]
    envs.close()


@pytest.mark.parametrize("id", IDS)
def test_make_vec_works_without_a_vector_entry_point(id: str, made: list[ScriptedEvaluator]) -> None:
    envs = gymnasium.make_vec(id, num_envs=2, vectorization_mode="sync", problem="core/level1/relu")
    envs.reset()
    assert envs.step((ANSWER, ANSWER))[1].tolist() == [verified(make_verdict())] * 2
    envs.close()
    assert all(evaluator.closed for evaluator in made)


@pytest.mark.parametrize("cls", [SingleTurnEnv, MultiTurnEnv])
def test_docstrings_have_gymnasiums_headings(cls: type) -> None:
    headings = [line.strip()[3:] for line in (cls.__doc__ or "").splitlines() if line.strip().startswith("## ")]
    assert headings == [
        "Description",
        "Action Space",
        "Observation Space",
        "Starting State",
        "Rewards",
        "Episode End",
        "Information",
        "Arguments",
        "Version History",
    ]


def test_importing_kbenv_is_light() -> None:
    script = (
        "import sys, kbenv, gymnasium\n"
        "heavy = {'torch', 'litellm', 'docker', 'kbenv.env', 'kbenv.evaluator', 'jinja2', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert 'kbenv/SingleTurn-v0' in gymnasium.registry and 'kbenv/MultiTurn-v0' in gymnasium.registry\n"
        "assert kbenv.Status.PASSED == 'PASSED' and kbenv.get_protocol().name == 'hardened'\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_everything_public_can_be_had_from_kbenv() -> None:
    assert all(getattr(kbenv, name) is not None for name in kbenv.__all__)
    assert set(kbenv.__all__) <= set(dir(kbenv))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kbenv.nothing  # type: ignore[attr-defined]


def profiled(verdict: Verdict, source: str) -> str:
    return f"profile of {len(source)} characters, {verdict.status.value}"


@pytest.mark.parametrize(
    ("execution", "profiler", "expected"),
    [
        (True, None, ("Speedup over", None)),
        (True, profiled, ("Speedup over", "profile of")),
        (False, profiled, (None, "profile of")),
        (False, None, (None, None)),
    ],
)
def test_execution_feedback_and_profile_are_separate_switches(
    execution: bool, profiler: Any, expected: tuple[str | None, str | None]
) -> None:
    verdict = make_verdict(speedup=2.0)
    env = multi(verdict, max_turns=3, execution_feedback=execution, profiler=profiler)
    env.reset()
    observation, reward, *_, info = env.step(ANSWER)
    for word, told in zip(("Speedup over", "profile of"), expected, strict=True):
        assert (word in observation) is (told is not None)
    assert ("Best so far" in observation) is execution
    assert "This was turn 1 of 3" in observation
    assert (reward, info["verdict"].credited) == (0.75, True)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_a_profile_is_of_right_answers_alone(status: Status) -> None:
    asked: list[Verdict] = []

    def profiler(verdict: Verdict, source: str) -> str:
        asked.append(verdict)
        return "profile"

    env = single(make_verdict(status), profiler=profiler)
    env.reset()
    observation, *_ = env.step(ANSWER)
    right = status is Status.NO_CUSTOM_KERNEL
    assert ("profile" in observation) is right
    assert len(asked) == right


def test_a_profiler_may_have_nothing_to_say() -> None:
    env = single(profiler=lambda verdict, source: None)
    env.reset()
    observation, *_ = env.step(ANSWER)
    assert observation == render_feedback(make_verdict())


def test_the_prompts_options_reach_the_prompt() -> None:
    assert "## What decides the speed" in single(prompt=PromptOptions(concepts=True)).reset()[0]
