"""The anatomy of a wrong output: every kind of fault that kernels have is placed and named, and right ones are not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kbenv.sandbox.judge import anatomy as module
from kbenv.sandbox.judge.anatomy import Anatomy, dissect
from kbenv.sandbox.judge.compare import compare
from tests.test_compare import arena_of


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def names(anatomy: Anatomy) -> list[str]:
    return [hypothesis.name for hypothesis in anatomy.hypotheses]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small tensors: with several threads most of the time goes into waking them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 1000)


def brute(e: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    return ~torch.isclose(f.double(), e.double(), rtol=1e-3, atol=1e-3, equal_nan=True)


# -- where ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=0, max_size=4), st.integers(0, 2**32 - 1), st.integers(1, 40), st.data())
def test_counts_and_box_are_exact_in_any_chunks(shape, seed, chunk, data):
    e = randn(*shape, seed=seed)
    f = e.clone()
    for _ in range(data.draw(st.integers(0, 5))):
        f.view(-1)[data.draw(st.integers(0, e.numel() - 1))] += data.draw(st.sampled_from([1.0, math.nan, math.inf]))
    if len(shape) > 1 and data.draw(st.booleans()):
        e, f = e.transpose(0, 1), f.transpose(0, 1)
    saved = module.CHUNK_ELEMENTS["cpu"]
    module.CHUNK_ELEMENTS["cpu"] = chunk
    try:
        anatomy = dissect(e, f, 1e-3, 1e-3)
    finally:
        module.CHUNK_ELEMENTS["cpu"] = saved
    wrong = brute(e, f)
    assert anatomy.wrong == int(wrong.sum())
    assert anatomy.nonfinite == int((wrong & ~torch.isfinite(f)).sum())
    json.dumps(anatomy.to_json(), allow_nan=False)
    if anatomy.wrong and wrong.dim():
        places = wrong.nonzero()
        box = tuple(zip(places.amin(0).tolist(), (places.amax(0) + 1).tolist(), strict=True))
        whole = all(bounds == (0, size) for bounds, size in zip(box, wrong.shape, strict=True))
        assert anatomy.box == (None if whole else box)


@pytest.mark.parametrize("shape", [(512, 768), (4, 32, 48, 48), (1, 3000), (2048, 1)])
def test_equal_tensors_have_nothing_wrong(shape):
    x = randn(*shape)
    anatomy = dissect(x, x.clone())
    assert (anatomy.wrong, anatomy.hypotheses, anatomy.box) == (0, (), None)


def test_the_box_of_a_tile_and_how_full_it_is():
    e = randn(512, 768)
    f = e.clone()
    f[128:256, 64:192] += 1.0
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.box == ((128, 256), (64, 192))
    assert anatomy.box_share == 1.0
    assert anatomy.offset == pytest.approx(1.0, abs=1e-4)
    assert anatomy.tails == anatomy.periods == ()


@pytest.mark.parametrize(("size", "block"), [(1000, 32), (770, 256), (1023, 8), (502, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_an_incomplete_last_tile_is_named(size, block, axis):
    shape = [64, 64]
    shape[axis] = size
    e = randn(*shape)
    f = e.clone()
    start = size // block * block
    f.narrow(axis, start, size - start).zero_()
    anatomy = dissect(e, f, 1e-3, 1e-3)
    (tail,) = anatomy.tails
    assert (tail.axis, tail.start, tail.size) == (axis, start, size)
    assert tail.block is not None
    assert tail.block % block == 0
    assert names(anatomy) == ["not-written"]


def test_incomplete_tiles_along_both_axes_are_both_named():
    e = randn(300, 500)
    f = e.clone()
    f[256:] = 0
    f[:, 448:] = 0
    assert [(tail.axis, tail.start, tail.block) for tail in dissect(e, f, 1e-3, 1e-3).tails] == [
        (0, 256, 256),
        (1, 448, 64),
    ]


def test_elements_after_the_last_whole_vector_are_a_flat_tail():
    e = randn(7, 13, 33)
    f = e.clone()
    f.view(-1)[-3:] = 0
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.flat_tail == e.numel() - 3


def test_a_grid_that_is_too_small_leaves_a_flat_tail(small_chunks):
    e = randn(100, 70)
    f = e.clone()
    f.view(-1)[4321:] = 0
    assert dissect(e, f, 1e-3, 1e-3).flat_tail == 4321


@pytest.mark.parametrize("length", [2, 4, 24, 32, 64, 128])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("edge", ["first", "last", "half"])
def test_a_period_along_an_axis(length, axis, edge):
    shape = [24, 24, 24]
    shape[axis] = 1024
    e = randn(*shape)
    f = e.clone()
    first, count = {"first": (0, 1), "last": (length - 1, 1), "half": (length // 2, length // 2)}[edge]
    index = torch.arange(1024)
    residue = index % length
    f.index_add_(axis, index[(residue >= first) & (residue < first + count)],
                 torch.ones([int(((residue >= first) & (residue < first + count)).sum()) if a == axis else s
                             for a, s in enumerate(shape)]))  # fmt: skip
    (period,) = dissect(e, f, 1e-3, 1e-3).periods
    assert (period.axis, period.length, period.first, period.count) == (axis, length, first, count)


def test_a_period_in_memory_order_that_no_axis_shows():
    e = randn(300, 130)
    f = e.clone()
    f.view(-1)[31::32] += 1
    (period,) = dissect(e, f, 1e-3, 1e-3).periods
    assert (period.axis, period.length, period.first, period.count) == (None, 32, 31, 1)


def test_scattered_errors_have_no_place():
    e = randn(512, 512)
    f = e.clone()
    f[torch.rand(512, 512, generator=torch.Generator().manual_seed(1)) < 0.05] += 1.0
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.tails == anatomy.periods == anatomy.growth == ()
    assert anatomy.box is None
    assert anatomy.flat_tail is None


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_growth_along_an_axis(power):
    e = randn(64, 2048)
    f = e + 0.01 * (1 + torch.arange(2048)) ** power * torch.sign(randn(64, 2048, seed=3))
    (growth,) = dissect(e, f, 1e-3, 1e-3).growth
    assert growth.axis == 1
    assert growth.power == pytest.approx(power, abs=0.3)
    assert growth.last_error > 3 * growth.first_error


# -- how --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 0.5, -3.0, 1 / 768, 768.0, 1.02])
def test_a_factor_is_fitted(factor):
    e = randn(512, 768)
    anatomy = dissect(e, factor * e, 1e-4, 1e-3)
    assert anatomy.factor == pytest.approx(factor, rel=1e-4)
    assert anatomy.offset is None
    assert names(anatomy) == []


def test_a_factor_is_fitted_where_it_applies_only_in_a_place():
    e = randn(512, 768)
    f = e.clone()
    f[:, 700:] *= 2
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.factor == pytest.approx(2.0)
    assert anatomy.tails[0].start == 700


def test_a_factor_is_fitted_through_the_rounding_of_tensor_cores():
    e = randn(512, 768)
    f = 2 * e * (1 + 3e-4 * randn(512, 768, seed=4))
    assert dissect(e, f, 1e-3, 1e-3).factor == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("offset", [1.0, -0.25])
def test_an_offset_is_fitted(offset):
    e = randn(512, 768)
    anatomy = dissect(e, e + offset, 1e-3, 1e-3)
    assert (anatomy.factor, anatomy.offset) == (None, pytest.approx(offset, rel=1e-3))


def test_factor_and_offset_together():
    e = randn(512, 768)
    anatomy = dissect(e, 0.5 * e + 3, 1e-3, 1e-3)
    assert anatomy.factor == pytest.approx(0.5, rel=1e-3)
    assert anatomy.offset == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite(wrong):
    e = randn(64, 128)
    f = e.clone()
    f[3] = wrong
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert names(anatomy) == ["not-finite"]
    assert anatomy.box == ((3, 4), (0, 128))


def test_nan_and_infinity_at_the_same_places_are_right():
    e = randn(64, 128)
    e[1, 1], e[2, 2], e[3, 3] = math.nan, math.inf, -math.inf
    assert dissect(e, e.clone(), 1e-3, 1e-3).wrong == 0
    f = e.clone()
    f[2, 2] = -math.inf
    assert dissect(e, f, 1e-3, 1e-3).wrong == 1


def test_a_constant():
    e = randn(64, 128)
    f = torch.full_like(e, 0.125)
    (guess,) = dissect(e, f, 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.value) == ("constant", 0.125)


def test_a_missing_activation():
    x = randn(512, 768)
    assert names(dissect(x.relu(), x, 1e-3, 1e-3)) == ["not-clamped"]


def test_signs():
    x = randn(512, 768)
    assert dissect(x, -x, 1e-3, 1e-3).factor == -1.0
    assert names(dissect(x, x.abs(), 1e-3, 1e-3)) == ["absolute"]


@pytest.mark.parametrize("shape", [(256, 256), (128, 320), (2048, 96)])
def test_transposed(shape):
    e = randn(*shape)
    f = e.t().contiguous().view(*shape)
    (guess,) = dissect(e, f, 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("permuted", (1, 0))


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 2, 3, 1), (1, 0, 2, 3)])
def test_permuted_axes_of_four(order):
    e = randn(4, 16, 24, 32)
    f = e.permute(order).contiguous().view(4, 16, 24, 32)
    (guess,) = dissect(e, f, 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("permuted", order)


def test_reversed_shifted_and_repeated():
    e = randn(300, 400)
    (guess,) = dissect(e, e.flip(1), 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("reversed", (1,))
    for shift in (1, -2, 32):
        (guess,) = dissect(e, e.roll(-shift, 0), 1e-3, 1e-3).hypotheses
        assert (guess.name, guess.axes, guess.value) == ("shifted", (0,), shift)
    (guess,) = dissect(e, e[:1].expand(300, 400), 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("repeated", (0,))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("noise", [0.0, 3e-4])
def test_a_missing_bias(axis, noise):
    e = randn(512, 512)
    bias = randn(512, seed=7).unsqueeze(1 - axis)
    f = (e - bias) * (1 + noise * randn(512, 512, seed=8))
    (guess,) = dissect(e, f, 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("term-by-index", (axis,))


def test_a_missing_bias_of_a_channel():
    e = randn(8, 32, 24, 24)
    (guess,) = dissect(e, e - 0.3 * randn(32, 1, 1, seed=7), 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("term-by-index", (1,))


def test_a_missing_scale():
    e = randn(512, 768)
    scale = 0.5 + torch.rand(768, generator=torch.Generator().manual_seed(2))
    (guess,) = dissect(e * scale, e, 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("factor-by-index", (1,))


def test_a_bias_along_the_wrong_axis():
    e, bias = randn(512, 512), randn(512, seed=7)
    (guess,) = dissect(e + bias, e + bias[:, None], 1e-3, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("term-on-wrong-axis", (0, 1))


def _layer_norm(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.layer_norm(x.transpose(axis, -1), (x.shape[axis],)).transpose(axis, -1)


@pytest.mark.parametrize("function", [torch.softmax, _layer_norm])
def test_a_reduction_along_the_wrong_axis(function):
    x = 2 * randn(256, 256) + randn(256, 1, seed=5) + randn(1, 256, seed=6)
    (guess,) = dissect(function(x, 1), function(x, 0), 1e-5, 1e-3).hypotheses
    assert (guess.name, guess.axes) == ("normalised-on-wrong-axis", (1, 0))


@pytest.mark.parametrize("tiles", [2, 4, 16])
@pytest.mark.parametrize("positive", [False, True])
def test_a_product_that_keeps_only_its_last_tile(tiles, positive):
    a, b = randn(512, 512), randn(512, 384, seed=1)
    if positive:
        a, b = a.abs(), b.abs()
    last = 512 - 512 // tiles
    (guess,) = dissect(a @ b, a[:, last:] @ b[last:], 1e-3, 1e-3).hypotheses
    assert guess.name == "partial-sum"
    assert guess.value == pytest.approx(1 / tiles, rel=0.25)


def test_an_accumulator_that_is_not_cleared():
    a, b = randn(512, 512), randn(512, 512, seed=1)
    f = a @ b
    f = f + f.roll(1, 0)
    assert names(dissect(a @ b, f, 1e-3, 1e-3)) == ["surplus-sum"]


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float16, "stored-in-half"), (torch.bfloat16, "stored-in-bfloat16")], ids=str
)
def test_storage_in_a_narrow_type(dtype, name):
    e = randn(512, 768)
    assert names(dissect(e, e.to(dtype).float(), 1e-6, 1e-5)) == [name]


def test_operands_in_a_narrow_type():
    a, b = randn(256, 512), randn(512, 256, seed=1)
    (guess,) = dissect(a @ b, a.bfloat16().float() @ b.bfloat16().float(), 1e-3, 1e-3).hypotheses
    assert guess.name == "low-precision"
    assert guess.value == pytest.approx(2.4e-3, rel=0.3)


def test_unrelated_values_give_no_hypothesis():
    anatomy = dissect(randn(512, 512), randn(512, 512, seed=9), 1e-3, 1e-3)
    assert (anatomy.hypotheses, anatomy.factor, anatomy.offset) == ((), None, None)


# -- every kind of tensor ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64],
    ids=str,
)  # fmt: skip
def test_every_dtype_can_be_dissected(dtype):
    e = (3 * randn(40, 50)).to(dtype)
    f = e.clone()
    f[32:] = ~f[32:] if dtype is torch.bool else f[32:] + 4
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.tails[0].start == 32
    assert anatomy.tails[0].block == 32


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2,), (0, 3)])
def test_small_tensors(shape):
    e = torch.zeros(shape)
    anatomy = dissect(e, e + 1, 1e-3, 1e-3)
    assert anatomy.wrong == e.numel()
    json.dumps(anatomy.to_json(), allow_nan=False)


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 6e4, -3e38, 1e300, math.inf, -math.inf, math.nan])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
          torch.complex128, torch.float8_e4m3fn]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 20), max_size=4).filter(lambda shape: math.prod(shape) < 3000),
    st.sampled_from(DTYPES), st.lists(SPECIAL, min_size=1, max_size=5), st.lists(SPECIAL, min_size=1, max_size=5),
    st.booleans(), st.sampled_from([None, 0.0, 1e-3]),
)  # fmt: skip
def test_whatever_the_values_are_the_anatomy_is_whole_and_finite(shape, dtype, some, others, mixed, absolute):
    noise = randn(*shape).double()
    e, f = (
        torch.tensor(values, dtype=torch.float64)
        .repeat(math.prod(shape) // len(values) + 1)[: math.prod(shape)]
        .view(shape)
        for values in (some, others)
    )
    e, f = (torch.where(noise > 0, noise, x) if mixed else x for x in (e, f))
    e, f = (
        x if dtype.is_floating_point or dtype.is_complex else x.nan_to_num(0, 1, -1).clamp(-100, 100) for x in (e, f)
    )
    anatomy = dissect(e.to(dtype), f.to(dtype), absolute, 1e-3)
    json.dumps(anatomy.to_json(), allow_nan=False)
    assert 0 <= anatomy.wrong <= anatomy.elements
    assert 0 <= anatomy.box_share <= 1


def test_axes_of_size_one_are_counted():
    e = randn(1, 64, 1, 100)
    f = e.clone()
    f[..., 96:] = 0
    anatomy = dissect(e, f, 1e-3, 1e-3)
    assert anatomy.box == ((0, 1), (0, 64), (0, 1), (96, 100))
    assert anatomy.tails[0].axis == 3


def test_the_same_tensors_give_the_same_anatomy(small_chunks):
    e = randn(300, 200)
    f = e + 0.1 * randn(300, 200, seed=2)
    assert dissect(e, f) == dissect(e, f)


def test_without_an_absolute_tolerance_the_output_gives_the_scale():
    e = 1e-6 * randn(300, 200)
    f = e.clone()
    f[0] *= 1.5
    assert 150 <= dissect(e, f).wrong <= 200


def test_tensors_of_two_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        dissect(randn(2, 3), randn(3, 2))


def test_the_output_with_the_first_mismatch_is_described():
    e = [randn(4, 8), randn(64, 100)]
    f = [e[0].clone(), e[1].clone()]
    f[1][:, 96:] = 0
    expected, found = arena_of([e[0].double(), e[1].double()]), arena_of(e, f)
    comparison = compare(arena_of(e), arena_of(f), range(1), [1e-3, 1e-3], 1e-3, "cpu")
    described = module.describe(comparison, expected, found, (0, 1), 1e-3, 1e-3)
    assert described is not None
    assert described["shape"] == (64, 100)
    assert described["tails"] == ({"axis": 1, "start": 96, "size": 100, "block": 32},)
    right = compare(expected, expected, range(1), [1e-3, 1e-3], 1e-3, "cpu")
    assert module.describe(right, expected, expected, (0, 0), 1e-3, 1e-3) is None
