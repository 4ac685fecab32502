"""Vector environments: many episodes side by side, their answers judged together on one or several devices.

`gymnasium.make_vec` makes them. They differ from a `SyncVectorEnv` in two things: all answers of a step are in the
judges' queue at once, and a fault of the machine ends one episode instead of all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kbenv.env import MultiTurnEnv, SingleTurnEnv
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.extraction import extract_code
from kbenv.pool import EvaluatorPool, open_pool
from kbenv.problems import load_problem
from kbenv.problems.problem import Problem
from kbenv.reward import DEFAULT_REWARD, NEED_COMPILED
from kbenv.verdict import Verdict

Observations = tuple[str, ...]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class _KernelVectorEnv(VectorEnv[Observations, Sequence[str], NDArray[Any]]):
    """What both vector environments share.

    Args:
        num_envs: how many episodes run side by side.
        problem: the one problem of all episodes, or else
        problems: several; the e-th episode of place i plays the (i + e * num_envs)-th of them, around and around.
        pool: judges for all, which stay open when the environment closes; or else
        devices: as for `kbenv.open_pool`; or else one device, by the option `device` of `kbenv.Evaluator`, with
        evaluator_options: as for `kbenv.Evaluator`; `build_workers` is the pool's.
        reward: as in the single environments.

    Raises:
        UsageError: one of these is not to be had, or two exclude each other.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        problem: Problem | str | None = None,
        problems: Sequence[Problem | str] | None = None,
        pool: EvaluatorPool | None = None,
        devices: Sequence[str] | None = None,
        reward: str = DEFAULT_REWARD,
        render_mode: str | None = None,
        **evaluator_options: Any,
    ) -> None:
        if (problem is None) == (problems is None) or (problems is not None and not problems):
            raise UsageError("give one problem as `problem`, or several as `problems`")
        if pool is not None and (devices is not None or evaluator_options):
            raise UsageError("give a pool, or devices and an evaluator's options, not both")
        named = [problem] if problem is not None else list(problems or ())
        self.problems = [load_problem(item) if isinstance(item, str) else item for item in named]
        self.num_envs = num_envs
        self.metadata = {**SingleTurnEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = render_mode
        self._owns_pool = pool is None
        self.pool = _open_pool(devices, reward, evaluator_options) if pool is None else pool
        try:
            self.envs = [self._make_env(self.problems[0], reward, render_mode) for _ in range(num_envs)]
        except BaseException:
            self.close()
            raise
        first = self.envs[0]
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._episodes = [0] * num_envs
        self._ended = [False] * num_envs

    @abstractmethod
    def _make_env(self, problem: Problem, reward: str, render_mode: str | None) -> SingleTurnEnv | MultiTurnEnv:
        """One place's environment, judged by the pool."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Starts an episode in every place; the first problems come first again."""
        super().reset(seed=seed)
        self._episodes = [0] * self.num_envs
        infos: dict[str, Any] = {}
        observations = []
        for place in range(self.num_envs):
            observation, info = self._restart(place, None if seed is None else seed + place)
            observations.append(observation)
            infos = self._add_info(infos, info, place)
        return tuple(observations), infos

    def step(self, actions: Sequence[str]) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """Judges one answer of every place. A place whose episode ended before starts its next one instead.

        A place that got no verdict, because the machine failed, has the reward NaN, `truncated`, and what happened in
        `info["fault"]`: nobody earned a zero there, and the trainer leaves the episode out.
        """
        asked = [None if self._ended[place] else self._ask(place, action) for place, action in enumerate(actions)]
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        observations: list[str] = []
        infos: dict[str, Any] = {}
        for place, (action, future) in enumerate(zip(actions, asked, strict=True)):
            if future is None:
                observation, info = self._restart(place)
            else:
                observation, rewards[place], terminated[place], truncated[place], info = self._settle(
                    place, action, future
                )
            self._ended[place] = bool(terminated[place] or truncated[place])
            observations.append(observation)
            infos = self._add_info(infos, info, place)
        return tuple(observations), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """A line a place on its last verdict when `render_mode` is "ansi", else None."""
        return None if self.render_mode is None else tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the pool if this environment opened it."""
        if self._owns_pool:
            self.pool.close()

    def _restart(self, place: int, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        env = self.envs[place]
        env.problem = self.problems[(place + self._episodes[place] * self.num_envs) % len(self.problems)]
        self._episodes[place] += 1
        self._ended[place] = False
        observation, info = env.reset(seed=seed)
        return observation, info | {"fault": None}

    def _ask(self, place: int, action: str) -> Future[Verdict | None]:
        """Puts the answer into the queue; a farewell has the verdict None."""
        env = self.envs[place]
        env.expect_running()
        code = extract_code(action)
        if code is not None:
            return self.pool.submit(env.problem, code)  # type: ignore[return-value]  # a Future is invariant
        future: Future[Verdict | None] = Future()
        message = "the answer holds no fenced block with Python code"
        future.set_result(None if env.is_farewell(action, code) else self.pool.format_error(env.problem, message))
        return future

    def _settle(
        self, place: int, action: str, future: Future[Verdict | None]
    ) -> tuple[str, float, bool, bool, dict[str, Any]]:
        env = self.envs[place]
        try:
            observation, reward, terminated, truncated, info = env.settle(action, future.result())
        except SandboxError as error:
            return "", float("nan"), False, True, env.info() | {"fault": str(error)}
        return observation, reward, terminated, truncated, info | {"fault": None}


class SingleTurnVectorEnv(_KernelVectorEnv):
    """`kbenv/SingleTurn-v0` by `gymnasium.make_vec`: see `kbenv.env.SingleTurnEnv` for spaces, rewards and information.

        problems, devices = ["core/level1/relu", "core/level1/matmul"], ["cuda:0", "cuda:1"]
        envs = gymnasium.make_vec("kbenv/SingleTurn-v0", num_envs=8, problems=problems, devices=devices)

    Autoreset is Gymnasium's usual one (`AutoresetMode.NEXT_STEP`): the step after an episode's end ignores its action
    and returns the next prompt. `info` also has `fault`, see `step`.
    """

    def _make_env(self, problem: Problem, reward: str, render_mode: str | None) -> SingleTurnEnv:
        return SingleTurnEnv(problem, evaluator=self.pool, reward=reward, render_mode=render_mode)


class MultiTurnVectorEnv(_KernelVectorEnv):
    """`kbenv/MultiTurn-v0` by `gymnasium.make_vec`: see `SingleTurnVectorEnv`, and `max_turns` as in `MultiTurnEnv`."""

    def __init__(self, num_envs: int = 1, *, max_turns: int = 10, **options: Any) -> None:
        self.max_turns = max_turns
        super().__init__(num_envs, **options)

    def _make_env(self, problem: Problem, reward: str, render_mode: str | None) -> MultiTurnEnv:
        return MultiTurnEnv(
            problem, max_turns=self.max_turns, evaluator=self.pool, reward=reward, render_mode=render_mode
        )


def _open_pool(devices: Sequence[str] | None, reward: str, options: dict[str, Any]) -> EvaluatorPool:
    if reward in NEED_COMPILED:
        options = options | {"compiled_baseline": True}
    if devices is None:
        workers = {name: options[name] for name in ("build_workers",) if name in options}
        rest = {name: value for name, value in options.items() if name not in workers}
        return EvaluatorPool([Evaluator(**rest)], **workers)
    if "device" in options:
        raise UsageError("give `device` for one judge, or `devices` for several, not both")
    return open_pool(devices, **options)
