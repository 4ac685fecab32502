"""Generators are seeded as PyTorch seeds them."""

from __future__ import annotations

import pytest
import torch

from kbenv.sandbox.runner.parameters import generator_state, seed_generators


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", [0, 42, 2**63 - 1, 2**64 - 1])
def test_seeding_is_what_manual_seed_does(seed, device):
    before = generator_state(device)
    try:
        torch.manual_seed(seed)
        usual, drawn = generator_state(device), torch.rand(5, device=device)
        torch.manual_seed(7)
        seed_generators(seed, device)
        assert torch.equal(generator_state(device), usual)
        assert torch.equal(torch.rand(5, device=device), drawn)
    finally:
        torch.set_rng_state(before[: len(torch.get_rng_state())])
