"""All mutants: every fault that the rules find in a seed, thinned to one of a kind.

Deterministic: which of several faults of one kind is taken, and of which seeds a common kind is taken, a hash decides.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from tests.mutants import faults_c, faults_python
from tests.mutants.corpus import Mutant, Seed, stand_alone

SUBTLE = {
    "clamped_input", "comparison", "dropped_epsilon", "early_exit", "fast_approximation", "first_only",
    "ignored_parameter", "lost_update", "lower_precision", "missing_barrier", "missing_guard", "no_max_shift",
    "sampled", "some_elements", "some_values", "stale_value", "tail_not_handled", "wrong_constant", "wrong_epsilon",
    "wrong_initial", "wrong_limit",
}  # fmt: skip
"""Kinds that are taken from every seed; of the others, which mostly show on any input, every second seed has one."""


def faults(seed: Seed) -> Iterator[Mutant]:
    """Every fault of every kind."""
    return (faults_c if seed.language in ("c", "cuda") else faults_python).faults(seed)


def candidates(seed: Seed) -> Iterator[Mutant]:
    """One fault of each kind that this seed is to have; no two with the same source."""
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in faults(seed):
        by_operator[mutant.operator].append(mutant)
    sources = {stand_alone(seed.text)}
    for operator, found in sorted(by_operator.items()):
        one_in = (1 if operator in SUBTLE else 2) * (2 if seed.language == "torch" else 1)
        if draw(seed.name, operator) % one_in:
            continue
        for mutant in sorted(found, key=lambda mutant: draw(mutant.id)):
            if mutant.source not in sources:
                sources.add(mutant.source)
                yield mutant
                break


def draw(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:8], "big")
