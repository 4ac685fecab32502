"""TRL: a reward function for `GRPOTrainer` (and its kin), and a dataset's rows.

    with kbenv.open_pool(["cuda:1", "cuda:2"]) as pool:
        trainer = GRPOTrainer(
            model=..., reward_funcs=make_reward_func(pool),
            train_dataset=Dataset.from_list(make_rows(kbenv.list_problems("core/*"), pool)),
        )
        trainer.train()

TRL runs coroutine functions together, leaves a None out of the mean over reward functions, and, where all of them say
None for a completion, warns and gives it no weight of its own. (Read from TRL 0.22 to 0.27.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kbenv.errors import SandboxError
from kbenv.extraction import extract_code
from kbenv.pool import EvaluatorPool
from kbenv.problems import Problem, check_training
from kbenv.prompt import render_prompt
from kbenv.prompts import render
from kbenv.reward import DEFAULT_REWARD, expect_needs, get_reward

PROBLEM = "problem"
"""The dataset's column that names each row's problem."""
Completion = str | Sequence[dict[str, Any]]
RewardFunc = Callable[..., Awaitable[list[float | None]]]


def make_rows(problems: Sequence[Problem], pool: EvaluatorPool) -> list[dict[str, Any]]:
    """One row a problem: the conversation's first messages (`prompt`), and the problem's name (`problem`).

    Raises:
        TrainingForbiddenError: the licence of a problem's set restricts training on it.
    """
    for problem in problems:
        problem.check_training()
    system = {"role": "system", "content": render("system.j2", turns=1)}
    return [
        {
            "prompt": [
                system,
                {"role": "user", "content": render_prompt(problem, pool.protocol, pool.device, pool.backend)},
            ],
            PROBLEM: problem.id,
        }
        for problem in problems
    ]


def make_reward_func(pool: EvaluatorPool, reward: str = DEFAULT_REWARD) -> RewardFunc:
    """A coroutine function that judges a batch of completions on the pool's devices, equal ones once.

    Args:
        pool: judges; it stays its owner's.
        reward: a name of `kbenv.reward`.

    Returns:
        A function of TRL's form: a reward for each completion, None where the machine failed. It raises
        TrainingForbiddenError for a problem whose set's licence restricts training on it.

    Raises:
        UsageError: no such reward, or the pool's verdicts lack what it needs.
    """
    compute = get_reward(reward)
    expect_needs(reward, pool.protocol)

    async def judge(problem: str, completion: Completion) -> float | None:
        check_training(problem)
        code = extract_code(_text_of(completion))
        if code is None:
            return compute(pool.format_error(problem, "the answer holds no fenced block with Python code"))
        try:
            return compute(await asyncio.wrap_future(pool.submit(problem, code)))
        except SandboxError:
            return None

    async def kernel_reward(completions: Sequence[Completion], problem: Sequence[str], **_: Any) -> list[float | None]:
        return list(await asyncio.gather(*map(judge, problem, completions)))

    kernel_reward.__name__ = f"kbenv_{reward}"  # what TRL calls it in its logs
    return kernel_reward


def _text_of(completion: Completion) -> str:
    """The text of a completion, which in a conversational dataset is a list of messages."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(message.get("content") or "") for message in completion)
