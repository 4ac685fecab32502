"""Every seed of a job: fixed by the protocol, or secret and drawn anew, or those of an earlier verdict to replay."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

import torch

from ..wire import Message

DRAWN_ON_DEVICE = "get_inputs does not run on the CPU: all inputs are drawn on the device"
"""The flag of a verdict whose standard trials' inputs were to be drawn on the CPU, and could not be."""
_BITS = 53
"""What every reader of JSON keeps exactly."""


@dataclass
class Seeds:
    """What a verdict records.

    Attributes:
        construction: of both models' constructors.
        redraw: of constant parameters.
        standard, hidden, probes: one for each trial.
        transform: of the probes' and perturbations' own draws.
        timed_base: what the seeds of timed inputs are derived from, `timed_count` of them so far.
    """

    construction: int
    redraw: int
    standard: list[int]
    hidden: list[int]
    probes: list[int]
    transform: int
    timed_base: int
    timed_count: int = 0

    @classmethod
    def choose(cls, protocol: Message, given: Message | None) -> Seeds:
        """`given`: the seeds of a verdict, to judge with the same draws again."""
        if given is not None:
            names = ("construction", "redraw", "standard", "hidden", "probes", "transform", "timed_base")
            return cls(**{name: given[name] for name in names})
        counts = [protocol["standard_trials"], len(protocol["hidden_inputs"]), len(protocol["probes"])]
        construction: int = protocol["construction_seed"]
        if protocol["secret_seeds"]:
            construction = secrets.randbits(31)
            trials = [secrets.randbits(31) for _ in range(sum(counts))]
        else:
            # Upstream's own derivation of the trials' seeds from the construction seed; the others follow.
            generator = torch.Generator().manual_seed(construction)
            trials = [int(torch.randint(0, 2**32 - 1, (1,), generator=generator)) for _ in range(sum(counts))]
        standard, hidden, _ = counts
        return cls(
            construction, secrets.randbits(_BITS), trials[:standard], trials[standard : standard + hidden],
            trials[standard + hidden :], secrets.randbits(_BITS), secrets.randbits(_BITS),
        )  # fmt: skip

    def next_timed(self, count: int) -> list[int]:
        """Seeds of timed inputs, never twice in a job."""
        numbers = range(self.timed_count, self.timed_count + count)
        self.timed_count += count
        return [derive(self.timed_base, "timed", number) for number in numbers]

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def derive(secret: int, *labels: str | int) -> int:
    """A generator's seed (63 bits) from a secret: who finds one by trying all knows no other.

    A submission sees the inputs that a seed made, and may search for it; seeds in a row would tell it the next inputs.
    """
    digest = hashlib.sha256(repr((secret, *labels)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
