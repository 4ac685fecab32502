"""The adapters, called as the trainers call them; and, where they are installed, by the trainers themselves."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from kbenv.adapters import trl, verl
from kbenv.errors import SandboxError, TrainingForbiddenError, UsageError
from kbenv.pool import EvaluatorPool
from kbenv.problems.problem import Origin
from kbenv.reward import kevin, verified
from kbenv.verdict import Verdict
from tests.devices import Answer, Device, broken, pool_of, right
from tests.fakes import make_problem, make_verdict
from tests.models import make_answer

PROBLEM = "core/level1/relu"


@pytest.fixture
def pool() -> Iterator[EvaluatorPool]:
    def answer(device: Device, source: str) -> Verdict:
        return broken(device, source) if "number = 13" in source else right(device, source)

    with pool_of(Device("cuda:0", answer), Device("cuda:1", answer)) as pool:
        yield pool


def call(func: trl.RewardFunc, completions: list[Any], **columns: Any) -> list[float | None]:
    """As TRL calls a reward function: every column by its name, and some things of its own."""
    own = {"completion_ids": [[1]] * len(completions), "trainer_state": None, "log_extra": None, "log_metric": None}
    prompts = ["p"] * len(completions)
    awaited = func(prompts=prompts, completions=completions, problem=[PROBLEM] * len(completions), **own, **columns)
    return asyncio.run(awaited)  # type: ignore[arg-type]


FORBIDDEN = "gpu-mode/pmpp_v2/sort_py"


# -- TRL --------------------------------------------------------------------------------------------------------------


def test_trl_gets_a_reward_for_each_completion_in_order(pool: EvaluatorPool) -> None:
    rewards = call(trl.make_reward_func(pool), [make_answer(0), "no code", make_answer(1)])
    assert rewards == [verified(make_verdict()), 0.0, verified(make_verdict())]


def test_trl_gets_none_where_the_machine_failed(pool: EvaluatorPool) -> None:
    assert call(trl.make_reward_func(pool), [make_answer(13), make_answer(0)]) == [None, verified(make_verdict())]


def test_trl_is_refused_what_a_licence_forbids_to_train_on(pool: EvaluatorPool) -> None:
    forbidden = replace(make_problem(), id=FORBIDDEN, origin=Origin("gpu-mode", "url", "L", may_train=False))
    with pytest.raises(TrainingForbiddenError, match=r"licence of gpu-mode \(L\) restricts training"):
        trl.make_rows([make_problem(), forbidden], pool)
    with pytest.raises(TrainingForbiddenError, match=r"June 9 Researcher Reciprocity License 1.0\) restricts training"):
        asyncio.run(trl.make_reward_func(pool)([make_answer(0)], problem=[FORBIDDEN]))  # type: ignore[arg-type]


def test_trl_gives_conversations_as_messages(pool: EvaluatorPool) -> None:
    completions = [[{"role": "assistant", "content": make_answer(0)}], [{"role": "assistant", "content": None}]]
    assert call(trl.make_reward_func(pool), completions) == [verified(make_verdict()), 0.0]


def test_trl_judges_a_batch_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=10)

    def answer(device: Device, source: str) -> Verdict:
        together.wait()
        return right(device, source)

    with pool_of(Device("cuda:0", answer), Device("cuda:1", answer)) as pool:
        assert None not in call(trl.make_reward_func(pool), [make_answer(0), make_answer(1)])


def test_trl_sees_a_coroutine_function_with_the_rewards_name(pool: EvaluatorPool) -> None:
    func = trl.make_reward_func(pool, "kevin")
    assert inspect.iscoroutinefunction(func)
    assert func.__name__ == "kbenv_kevin"
    assert call(func, [make_answer(0)]) == [kevin(make_verdict())]


def test_a_reward_that_cannot_be_had_is_refused_before_training(pool: EvaluatorPool) -> None:
    with pytest.raises(UsageError, match="reward must be one of"):
        trl.make_reward_func(pool, "gold")
    with pytest.raises(UsageError, match="compiled_baseline"):
        trl.make_reward_func(pool, "tiers")


def test_rows_hold_the_conversation_and_the_problem(pool: EvaluatorPool) -> None:
    (row,) = trl.make_rows([make_problem()], pool)
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert "torch.relu(x)" in row["prompt"][1]["content"]
    assert row["problem"] == PROBLEM


# -- verl -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def verl_pool(pool: EvaluatorPool, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    opened: list[dict[str, Any]] = []

    def open_pool(**options: Any) -> EvaluatorPool:
        opened.append(options)
        return pool

    monkeypatch.setattr(verl, "open_pool", open_pool)
    verl._pool.cache_clear()
    return opened


def score(answer: str, **reward_kwargs: Any) -> dict[str, Any]:
    """As verl's reward managers call a custom function: four arguments by name, and the configuration's own."""
    return verl.compute_score(
        data_source="kernelbench", solution_str=answer, ground_truth=PROBLEM, extra_info={"index": 3}, **reward_kwargs
    )


@pytest.mark.usefixtures("verl_pool")
def test_verl_gets_a_dict_with_score_and_the_same_keys_each_time() -> None:
    good, bad = score(make_answer(0)), score("no code")
    assert good == {"score": verified(make_verdict()), "acc": 1.0, "speedup": 2.0, "status": "PASSED"}
    assert bad == {"score": 0.0, "acc": 0.0, "speedup": 0.0, "status": "FORMAT_ERROR"}


@pytest.mark.usefixtures("verl_pool")
def test_verl_never_gets_a_number_for_a_fault_of_the_machine() -> None:
    with pytest.raises(SandboxError, match="fell off the bus"):
        score(make_answer(13))


def test_verl_is_refused_what_a_licence_forbids_to_train_on(verl_pool: list[dict[str, Any]]) -> None:
    with pytest.raises(TrainingForbiddenError, match="restricts training"):
        verl.compute_score("d", make_answer(0), FORBIDDEN)
    assert verl_pool == []


def test_verl_opens_one_pool_for_each_set_of_options(verl_pool: list[dict[str, Any]]) -> None:
    for _ in range(3):
        assert score(make_answer(0), reward="kevin", devices=["cpu"], protocol="kernelbench")["score"] == 2.3
    score(make_answer(0), devices=["cpu", "cpu"])
    assert verl_pool == [{"devices": ["cpu"], "protocol": "kernelbench"}, {"devices": ["cpu", "cpu"]}]


def test_the_reward_tiers_asks_for_torch_compile(verl_pool: list[dict[str, Any]]) -> None:
    score(make_answer(0), reward="tiers")
    assert verl_pool[0]["compiled_baseline"] is True


# -- TRL itself -------------------------------------------------------------------------------------------------------

GRPO = Path(__file__).resolve().parent.parent / "examples" / "grpo_trl.py"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="needs the extra `trl`")
@pytest.mark.parametrize("answer", [right, broken])
def test_trls_own_trainer_takes_rewards_and_the_lack_of_them(answer: Answer, tmp_path: Path) -> None:
    spec = spec_from_file_location("grpo_trl", GRPO)
    assert spec is not None
    assert spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    with pool_of(Device("cuda:0", answer)) as pool:
        rewards = example.train(2, pool, tmp_path)
    assert len(rewards) == 2
    if answer is right:
        assert all(0 < reward <= verified(make_verdict()) for reward in rewards)
    else:
        assert all(math.isnan(reward) or reward == 0.0 for reward in rewards)  # no code in some answers earns a zero
