"""Operands cut to TF32: of products only, toward zero, by what a tensor core ignores."""

from __future__ import annotations

import pytest
import torch

from kbenv.sandbox.runner.truncated import dithered_products, truncated_products

PRODUCTS = {
    "mm": lambda x, y: x @ y,
    "linear": lambda x, y: torch.nn.functional.linear(x, y, torch.full((8,), 1 + 2.0**-20)),
    "bmm": lambda x, y: torch.bmm(x.expand(3, -1, -1), y.expand(3, -1, -1)),
    "conv": lambda x, y: torch.nn.functional.conv1d(x[None], y[:, :, None]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_lose_their_low_bits_and_nothing_else_does(name):
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 8, generator=draws), torch.rand(8, 8, generator=draws)
    cut_x, cut_y = ((z.view(torch.int32) >> 13 << 13).view(torch.float32) for z in (x, y))
    with truncated_products() as mode:
        found = PRODUCTS[name](x, y)
    assert mode.products == 1
    assert not torch.equal(found, PRODUCTS[name](x, y))
    assert torch.equal(found, PRODUCTS[name](cut_x, cut_y))


def test_what_is_no_product_of_float32_stays():
    x = torch.rand(8, 8)
    with truncated_products() as mode:
        assert torch.equal((x + x).softmax(dim=0).sum(), (x + x).softmax(dim=0).sum())
        assert mode.products == 0
        assert torch.equal(x.double() @ x.double(), x.double() @ x.double())


def test_moved_operands_differ_from_run_to_run_by_a_unit_of_tf32_at_most():
    x, one = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) + 1, torch.eye(64)
    with dithered_products() as mode:
        runs = [x @ one for _ in range(2)]
    assert mode.products == 2
    for run in runs:
        off = ((run - x) / x).abs()
        assert 0.8 * 2.0**-10 < off.max() <= 2.01 * 2.0**-10  # of both operands
    assert not torch.equal(*runs)
