"""The reference with operators off by a rounding."""

from __future__ import annotations

import pytest
import torch

from kbenv.sandbox.runner.rounded import RoundedOperators


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2**-23), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)])
def test_what_an_operator_makes_is_off_by_a_unit_in_the_last_place_at_most_and_differs_from_run_to_run(dtype, unit):
    x = torch.rand(1000).to(dtype) + 1
    with RoundedOperators():
        runs = [x.abs() for _ in range(2)]
    for run in runs:
        assert run.dtype is dtype
        off = ((run.double() - x.double()) / x.double()).abs()
        assert 0 < off.max() <= 1.5 * unit
    assert not torch.equal(*runs)


def test_views_integers_and_what_is_written_in_place_stay():
    x = torch.rand(100)
    kept = x.clone()
    with RoundedOperators():
        view = x[10:20]
        view.mul_(1.0)
        count = (x > 0.5).sum()
    assert torch.equal(x, kept)
    assert view.data_ptr() == x[10:].data_ptr()
    assert count == (kept > 0.5).sum()


def test_infinities_stay_as_those_of_a_mask():
    scores = torch.full((4, 100), -torch.inf)
    scores[:, 1] = 2.0
    with RoundedOperators():
        moved = scores.clone()
    assert torch.equal(moved.isinf(), scores.isinf())
    assert not moved.isnan().any()


def test_a_chain_is_off_by_more_where_it_is_sensitive():
    x = torch.tensor([1.0, 1e6])
    with RoundedOperators():
        off = torch.stack([((x + 1) - x) - 1 for _ in range(20)]).abs().amax(dim=0)
    assert off[0] < 1e-5 < 0.01 < off[1]


def test_pytorchs_generator_is_left_alone():
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    with RoundedOperators():
        torch.ones(5).exp()
    assert torch.equal(torch.rand(4), wanted)
