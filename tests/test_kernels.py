"""The judge's own kernels say what PyTorch's operators say."""

from __future__ import annotations

import math

import pytest
import torch

from kbenv.sandbox.judge import blocks, kernels
from kbenv.sandbox.judge.compare import same_bytes

pytestmark = pytest.mark.gpu

LENGTHS = (32, 257, 1024, 4096)


def drawn(elements: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(elements, generator=generator, device="cuda", dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("nbytes", [512, 1 << 20, (1 << 26) + 512])
def test_every_bit_that_differs_is_seen(nbytes):
    a = torch.randint(256, (nbytes,), device="cuda", dtype=torch.uint8)
    assert same_bytes(a, a.clone())
    for place in (0, 15, 16, nbytes // 2 + 3, nbytes - 1):
        b = a.clone()
        b[place] ^= 1 << place % 8
        assert not same_bytes(a, b)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("elements", [1, 31, 4096, 1_000_003])
def test_errors_by_block_are_those_of_the_operators(elements, dtype, length):
    e = drawn(elements, dtype)
    f = (e * (1 + 1e-4 * drawn(elements, dtype, seed=1))).float()
    found, expected = blocks.errors_of(e, f, length), blocks.errors_of(e.cpu(), f.cpu(), length)
    assert found.finite
    for name in ("size", "largest", "squares", "values"):
        assert torch.allclose(getattr(found, name).cpu(), getattr(expected, name), rtol=1e-5, atol=0), name


@pytest.mark.parametrize("length", LENGTHS)
def test_one_element_stands_out_of_its_block_alone(length):
    e = drawn(50 * length + 7, torch.float32)
    for place in (0, length - 1, length, 20 * length + 5, len(e) - 1):
        f = e.clone()
        f[place] += 1
        largest, squares, _ = kernels.errors(e, f, length)
        assert (largest > 0).nonzero().flatten().tolist() == [place // length]
        assert float(squares[place // length]) == pytest.approx(float((f[place] - e[place]).double() ** 2))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_difference_that_is_not_finite_is_told(value):
    e = drawn(10_000, torch.float32)
    f = e.clone()
    f[7_777] = value
    assert not blocks.errors_of(e, f, 256).finite
    assert not blocks.errors_of(f, f, 256).finite  # no number says that equal infinities are equal
    assert (kernels.errors(e, f, 256)[0] < 0).nonzero().flatten().tolist() == [7_777 // 256]
