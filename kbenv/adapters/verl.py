"""verl: `compute_score`, the custom reward function of its reward managers.

    custom_reward_function.path=.../kbenv/adapters/verl.py custom_reward_function.name=compute_score
    +custom_reward_function.reward_kwargs.reward=kevin '+custom_reward_function.reward_kwargs.devices=["cuda:7"]'

A row's `reward_model.ground_truth` names its problem. verl has no word for "no reward": a fault of the machine, after
the retries, is raised, so that a step fails rather than learns from a zero that nobody earned. (Read from verl's
`NaiveRewardManager` and `get_custom_reward_fn`, which pass these four arguments by name and take a dict with "score".)
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from kbenv.extraction import extract_code
from kbenv.pool import EvaluatorPool, open_pool
from kbenv.problems import check_training
from kbenv.reward import DEFAULT_REWARD, NEED_COMPILED, get_reward


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    reward: str = DEFAULT_REWARD,
    devices: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The reward of one answer, and what verl shall log beside it.

    Args:
        data_source, extra_info: verl's; they play no part here.
        solution_str: the model's answer as it came.
        ground_truth: the problem's name.
        reward: a name of `kbenv.reward`.
        devices, options: as for `kbenv.open_pool`. One pool for each set of them lives as long as the process.

    Returns:
        "score" (the reward), "acc" (1 when credited, else 0), "speedup" (0 when not credited), "status".

    Raises:
        SandboxError: no verdict could be had.
        UsageError: the problem or an option is no good.
        TrainingForbiddenError: the licence of the problem's set restricts training on it.
    """
    check_training(ground_truth)
    compute = get_reward(reward)
    if reward in NEED_COMPILED:
        options["compiled_baseline"] = True
    named = None if devices is None else list(devices)
    pool = _pool(json.dumps({"devices": named, **options}, sort_keys=True))
    code = extract_code(solution_str)
    if code is None:
        verdict = pool.format_error(ground_truth, "the answer holds no fenced block with Python code")
    else:
        verdict = pool.evaluate(ground_truth, code)
    credited = verdict.credited and verdict.speedup is not None
    return {
        "score": compute(verdict),
        "acc": float(verdict.credited),
        "speedup": verdict.speedup.value if credited and verdict.speedup is not None else 0.0,
        "status": verdict.status.value,
    }


@cache
def _pool(options: str) -> EvaluatorPool:
    pool = open_pool(**json.loads(options))
    atexit.register(pool.close)
    return pool
