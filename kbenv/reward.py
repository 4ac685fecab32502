"""Rewards: pure functions of a verdict, chosen by name.

Every one but `tiers` is 0.0 for a verdict that is not credited. There is no reward where there is no verdict: a fault
of the machine is raised (`kbenv.errors.SandboxError`), or None in adapters, and never turned into a number here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kbenv.errors import UsageError
from kbenv.protocol import Protocol
from kbenv.verdict import Verdict

Reward = Callable[[Verdict], float]

DEFAULT_REWARD = "verified"
KEVIN_DISCOUNT = 0.4
COMPILED_MARGIN = 0.05
WIDE = 4.0
"""What is timed on a device that something else uses, or on a machine that is far too busy, says little."""


def credited_speedup(verdict: Verdict) -> float:
    """The speedup, or that of a call at the plausibility floor, if that is smaller; 0 where nothing is credited.

    A call below the floor is right by every check and is not refused, but what it gains there is not worth learning.
    Where the interval is wider than a factor of `WIDE` its lower end stands for the value, which is luck.
    """
    if not verdict.credited or verdict.speedup is None or verdict.reference_latency_ms is None:
        return 0.0
    speedup = verdict.speedup.value
    if verdict.speedup.high > WIDE * verdict.speedup.low:
        speedup = min(speedup, verdict.speedup.low)
    floor_ms = verdict.plausibility.floor_ms if verdict.plausibility is not None else None
    return speedup if floor_ms is None else min(speedup, verdict.reference_latency_ms / floor_ms)


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


def tiers(verdict: Verdict) -> float:
    """-1 when not credited, 1 when credited, 2 when also faster than eager PyTorch, 3 when also 5% faster than
    torch.compile (a call takes less than 0.95 of its time).

    Steps in the place of a measure: a lucky clock gains little. The third step needs a protocol with
    `compiled_baseline`; where torch.compile has no latency the second is the highest. A call below the plausibility
    floor counts as one at the floor.
    """
    if not verdict.credited:
        return -1.0
    speedup = credited_speedup(verdict)
    if speedup <= 1.0:
        return 1.0
    compiled_ms, reference_ms = verdict.compiled_reference_latency_ms, verdict.reference_latency_ms
    if compiled_ms is None or reference_ms is None:
        return 2.0
    return 3.0 if reference_ms / speedup < (1 - COMPILED_MARGIN) * compiled_ms else 2.0


def fast_p(verdict: Verdict, p: float = 1.0) -> float:
    """1 when credited and faster than `p` times the reference, strictly, else 0: the metric's own indicator."""
    return float(credited_speedup(verdict) > p)


def correct(verdict: Verdict) -> float:
    """1 when credited, else 0."""
    return 1.0 if verdict.credited else 0.0


def kernelgym(verdict: Verdict) -> float:
    """0.5 + 0.5 * min(speedup, 3) + coverage when credited, else 0: from 0.5 to 3.

    The form of the reward of Dr. Kernel's KernelGYM. Coverage is `provenance.custom_share`, the share of forward's time
    in kernels of the submission's own (0 where it was not measured), so that a kernel that does nearly nothing earns
    nearly nothing for being there. The submission's own process reports it: a large one is no proof.
    """
    if not verdict.credited or verdict.speedup is None:
        return 0.0
    coverage = 0.0 if verdict.provenance is None else _clip(verdict.provenance.custom_share, 0.0, 1.0)
    return 0.5 + 0.5 * min(credited_speedup(verdict), 3.0) + coverage


REWARDS: Mapping[str, Reward] = MappingProxyType(
    {
        "verified": verified, "kevin": kevin, "tiers": tiers, "fast_p": fast_p, "correct": correct,
        "kernelgym": kernelgym,
    }
)  # fmt: skip
NEED_COMPILED = frozenset({"tiers"})
"""Rewards that ask for the latency of torch.compile, hence for a protocol with `compiled_baseline`."""


def get_reward(name: str) -> Reward:
    """The reward called `name`.

    Raises:
        UsageError: there is none.
    """
    if name not in REWARDS:
        raise UsageError(f"reward must be one of {', '.join(REWARDS)}; found {name!r}")
    return REWARDS[name]


def expect_needs(name: str, protocol: Protocol) -> None:
    """Raises UsageError when verdicts under `protocol` lack what the reward called `name` needs."""
    if name in NEED_COMPILED and not protocol.compiled_baseline:
        raise UsageError(
            f"the reward {name} compares with torch.compile, which this evaluator's protocol does not time: make it "
            "with Evaluator(compiled_baseline=True)"
        )


def discounted(rewards: Sequence[float], gamma: float = KEVIN_DISCOUNT) -> list[float]:
    """The return of each turn of a trajectory: `R_t = sum over k >= t of gamma ** (k - t) * r_k`.

    Kevin-32B (arXiv 2507.11948) trains each turn on its return with gamma 0.4, so that a wrong kernel from which a fast
    one grew is worth something.
    """
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
