"""All mutants: every fault that the rules find in a seed, thinned to a few of each kind."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from tests.mutants import faults_c, faults_python
from tests.mutants.corpus import Mutant, Seed

OF_A_KIND = 2
MORE = 3
SUBTLE = {
    "clamped_input", "comparison", "dropped_epsilon", "early_exit", "ignored_parameter", "lost_update", "lower_precision",
    "no_max_shift", "sampled", "some_elements", "some_values", "stale_value", "wrong_constant", "wrong_epsilon",
    "wrong_initial", "wrong_limit", "first_only",
}  # fmt: skip


def candidates(seed: Seed) -> Iterator[Mutant]:
    """At most `OF_A_KIND` of each operator (`MORE` of the subtle), chosen by hash; no two with the same source."""
    by_operator: dict[str, dict[str, Mutant]] = defaultdict(dict)
    for mutant in faults(seed):
        if mutant.patches and any(patch.old != patch.new for patch in mutant.patches):
            by_operator[mutant.operator].setdefault(mutant.id, mutant)
    sources = {seed.text}
    for operator, found in sorted(by_operator.items()):
        limit = (MORE if operator in SUBTLE else OF_A_KIND) - (seed.language == "triton")
        for mutant in sorted(found.values(), key=lambda mutant: hashlib.sha256(mutant.id.encode()).digest()):
            if limit and mutant.source not in sources:
                sources.add(mutant.source)
                limit -= 1
                yield mutant


def faults(seed: Seed) -> Iterator[Mutant]:
    if seed.language in ("c", "cuda"):
        yield from faults_c.faults(seed)
    else:
        yield from faults_python.faults(seed)
