"""Rewards: pure functions of a verdict, chosen by name.

Every one is 0.0 for a verdict that is not credited. There is no reward where there is no verdict: a fault of the
machine is raised (`kbenv.errors.SandboxError`) and never turned into a number here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kbenv.errors import UsageError
from kbenv.verdict import Verdict

Reward = Callable[[Verdict], float]

DEFAULT_REWARD = "verified"
KEVIN_DISCOUNT = 0.4


def credited_speedup(verdict: Verdict) -> float:
    """The speedup, or that of a call at the plausibility floor, if that is smaller; 0 where nothing is credited.

    A call below the floor is right by every check and is not refused, but what it gains there is not worth learning.
    """
    if not verdict.credited or verdict.speedup is None or verdict.reference_latency_ms is None:
        return 0.0
    floor_ms = verdict.plausibility.floor_ms if verdict.plausibility is not None else None
    if floor_ms is None:
        return verdict.speedup.value
    return min(verdict.speedup.value, verdict.reference_latency_ms / floor_ms)


def verified(verdict: Verdict) -> float:
    """Right, then fast, then lean; bounded, so that one lucky problem does not drown the rest.

    0 when not credited, else

        clip(0.5 + 0.25 * log2(speedup), 0.1, 1.5) + 0.05 * clip(log2(memory ratio), -1, 1)

    The second term is absent where the protocol measured no memory. Values lie in [0.05, 1.55]; with equal memory: 0.25
    at half the reference's speed, 0.5 at the same, 0.75 at 2x, 1.33 at 10x, and 1.5 from 16x up. Never falls as the
    speedup or the memory ratio grows. The speedup is `credited_speedup`.
    """
    if not verdict.credited or verdict.speedup is None:
        return 0.0
    speed = _clip(0.5 + 0.25 * _log2(credited_speedup(verdict)), 0.1, 1.5)
    memory = 0.0 if verdict.memory is None else 0.05 * _clip(_log2(verdict.memory.ratio), -1.0, 1.0)
    return speed + memory


def kevin(verdict: Verdict) -> float:
    """0.3 + speedup when credited, else 0; unbounded. The turn reward of Kevin-32B (arXiv 2507.11948).

    The speedup is `credited_speedup`: where there is a plausibility floor it is bounded by that. The return over the
    turns of one trajectory is `discounted` with a factor of 0.4.
    """
    if not verdict.credited or verdict.speedup is None:
        return 0.0
    return 0.3 + credited_speedup(verdict)


def correct(verdict: Verdict) -> float:
    """1 when credited, else 0."""
    return 1.0 if verdict.credited else 0.0


REWARDS: Mapping[str, Reward] = MappingProxyType({"verified": verified, "kevin": kevin, "correct": correct})


def get_reward(name: str) -> Reward:
    """The reward called `name`.

    Raises:
        UsageError: there is none.
    """
    if name not in REWARDS:
        raise UsageError(f"reward must be one of {', '.join(REWARDS)}; found {name!r}")
    return REWARDS[name]


def discounted(rewards: Sequence[float], gamma: float = KEVIN_DISCOUNT) -> list[float]:
    """The return of each turn of a trajectory: `R_t = sum over k >= t of gamma ** (k - t) * r_k`."""
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def _log2(ratio: float) -> float:
    """log2, and minus infinity (which the caller clips) for a ratio that was rounded to zero."""
    return math.log2(ratio) if ratio > 0 else -math.inf


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
