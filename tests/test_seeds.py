"""Seeds: fixed, secret, or those of an earlier verdict; none tells another."""

from __future__ import annotations

import json
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from kbenv.protocol import get_protocol
from kbenv.sandbox.judge.seeds import Seeds, derive
from kbenv.verdict import SEEDS

HARDENED = get_protocol("hardened").model_dump(mode="json")
VERIFIED = get_protocol("verified").model_dump(mode="json")


def test_secret_seeds_are_never_the_same_twice():
    first, second = Seeds.choose(HARDENED, None), Seeds.choose(HARDENED, None)
    assert first != second
    assert first.construction != second.construction
    for seeds in (first, second):
        drawn = [*seeds.standard, *seeds.hidden, *seeds.probes]
        assert len(set(drawn)) == len(drawn)
        assert len(drawn) == 5 + 4 + len(HARDENED["probes"])
        assert seeds.construction not in drawn


def test_fixed_seeds_are_the_protocols_and_upstreams_derivation_of_them():
    first, second = Seeds.choose(VERIFIED, None), Seeds.choose(VERIFIED, None)
    assert (first.construction, first.standard, first.hidden) == (second.construction, second.standard, second.hidden)
    assert first.construction == 42
    generator = torch.Generator().manual_seed(42)
    assert first.standard == [int(torch.randint(0, 2**32 - 1, (1,), generator=generator)) for _ in range(5)]
    assert first.timed_base != second.timed_base


def test_what_a_verdict_records_makes_the_same_seeds_again():
    seeds = Seeds.choose(HARDENED, None)
    timed = seeds.next_timed(7)
    recorded = json.loads(json.dumps(seeds.to_json()))
    again = Seeds.choose(HARDENED, recorded)
    assert again.next_timed(3) + again.next_timed(4) == timed
    assert again == seeds
    assert recorded.keys() >= SEEDS
    assert all(int(float(recorded[name])) == recorded[name] for name in ("redraw", "transform", "timed_base"))


def test_timed_seeds_are_never_the_same_twice_nor_in_a_row():
    seeds = Seeds.choose(HARDENED, None)
    drawn = [seed for _ in range(50) for seed in seeds.next_timed(20)]
    assert len(set(drawn)) == 1000
    assert len({seed & 0xFFFFFFFF for seed in drawn}) == 1000  # all that PyTorch's generator on the CPU takes of it
    steps = {second - first for first, second in pairwise(drawn)}
    assert len(steps) == 999


@given(st.integers(0, 2**64), st.text(max_size=10), st.integers(-5, 10**6))
def test_derived_seeds_fit_a_generator_and_depend_on_every_part(secret, label, number):
    seed = derive(secret, label, number)
    assert 0 <= seed < 2**63
    torch.Generator().manual_seed(seed)
    assert seed == derive(secret, label, number)
    others = {derive(secret + 1, label, number), derive(secret, label + "x", number), derive(secret, label, number + 1)}
    assert seed not in others
    assert len(others) == 3
