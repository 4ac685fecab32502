"""The judge's own kernels say what PyTorch's operators say."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from kbenv.sandbox.judge import blocks, calibration, kernels
from kbenv.sandbox.judge.compare import same_bytes, same_values
from tests.arenas import arena_of

LENGTHS = (32, 257, 1024, 4096)


def drawn(elements: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(elements, generator=generator, device="cuda", dtype=torch.float64).to(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", [512, 1 << 20, (1 << 26) + 512])
def test_every_bit_that_differs_is_seen(nbytes):
    a = torch.randint(256, (nbytes,), device="cuda", dtype=torch.uint8)
    assert same_bytes(a, a.clone())
    for place in (0, 15, 16, nbytes // 2 + 3, nbytes - 1):
        b = a.clone()
        b[place] ^= 1 << place % 8
        assert not same_bytes(a, b)


@pytest.mark.gpu
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


@pytest.mark.gpu
@pytest.mark.parametrize("length", LENGTHS)
def test_one_element_stands_out_of_its_block_alone(length):
    e = drawn(50 * length + 7, torch.float32)
    for place in (0, length - 1, length, 20 * length + 5, len(e) - 1):
        f = e.clone()
        f[place] += 1
        largest, squares, _ = kernels.errors(e, f, length)
        assert (largest > 0).nonzero().flatten().tolist() == [place // length]
        assert float(squares[place // length]) == pytest.approx(float((f[place] - e[place]).double() ** 2))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_difference_that_is_not_finite_is_told(value):
    e = drawn(10_000, torch.float32)
    f = e.clone()
    f[7_777] = value
    assert not blocks.errors_of(e, f, 256).finite
    assert not blocks.errors_of(f, f, 256).finite  # no number says that equal infinities are equal
    assert (kernels.errors(e, f, 256)[0] < 0).nonzero().flatten().tolist() == [7_777 // 256]


def test_a_part_of_a_leaf_may_begin_where_no_word_does(monkeypatch):
    monkeypatch.setitem(calibration.PASS_ELEMENTS, "cpu", 320)
    flat = arena_of([torch.zeros(17, 35, dtype=torch.bfloat16)]).flat_leaf(0, 0)
    parts = [part for (part,) in calibration._parts("cpu", 35, flat)]
    assert [len(part) for part in parts] == [315, 280]
    assert parts[1].numel() * parts[1].element_size() % 16 == 0  # and yet no load of 16 bytes may begin there
    assert not kernels.are_words(parts[1], parts[1])
    assert kernels.are_words(flat[:280], flat[8:288])


def test_without_nvrtc_operators_do_what_kernels_would(monkeypatch):
    def missing():
        raise RuntimeError("libnvrtc.so was not found")

    for version, there in ((missing, False), (lambda: (0, 13, 0), True)):
        bindings = SimpleNamespace(nvrtc=SimpleNamespace(nvrtcVersion=version))
        monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=bindings))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        assert kernels._has_nvrtc.__wrapped__() is there
    x = torch.zeros(4)
    assert not kernels.may_take(x, x)  # not on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("begin", [0, 1, 8])
@pytest.mark.parametrize("count", [8, 9, 4096])
def test_parts_that_begin_anywhere_are_compared(begin, count):
    a = torch.arange(8192, device="cuda", dtype=torch.int16)
    b = a.clone()
    assert same_values(a[begin : begin + count], b[begin : begin + count])
    b[begin + count - 1] += 1
    assert not same_values(a[begin : begin + count], b[begin : begin + count])
