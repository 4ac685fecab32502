"""Operands cut to TF32: of products only, toward zero, by what a tensor core ignores."""

from __future__ import annotations

import pytest
import torch

from kbenv.sandbox.runner.truncated import TruncatedProducts

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
    with TruncatedProducts() as mode:
        found = PRODUCTS[name](x, y)
    assert mode.products == 1
    assert not torch.equal(found, PRODUCTS[name](x, y))
    assert torch.equal(found, PRODUCTS[name](cut_x, cut_y))


def test_what_is_no_product_of_float32_stays():
    x = torch.rand(8, 8)
    with TruncatedProducts() as mode:
        assert torch.equal((x + x).softmax(dim=0).sum(), (x + x).softmax(dim=0).sum())
        assert mode.products == 0
        assert torch.equal(x.double() @ x.double(), x.double() @ x.double())
