"""`verified` with so short a clock that a job is over in a second, and an honest submission."""

from __future__ import annotations

from typing import Any

from kbenv.protocol import Protocol, get_protocol
from tests.judge.corpus import TESTS, load_case

RELU = "core/level1/relu"
HONEST = load_case(TESTS / "statuses" / "passed.py").source


def quick_protocol(**limits: Any) -> Protocol:
    """The measured speedup is worth nothing; all that is compared still is."""
    protocol = get_protocol("verified")
    timing = protocol.timing.model_copy(
        update={
            "warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 2, "runner_pairs": 1, "slow_runner_pairs": 1,
            "turns_per_pair": 2, "single_call_turns": 2, "bootstrap_resamples": 50,
        }
    )  # fmt: skip
    return protocol.model_copy(
        update={
            "timing": timing, "standard_trials": 1, "hidden_inputs": protocol.hidden_inputs[-1:],
            "limits": protocol.limits.model_copy(update=limits),
        }
    )  # fmt: skip
