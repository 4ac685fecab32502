"""Probes and perturbations change what they say and nothing else, the same by the same seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kbenv.protocol import PROBES as OF_THE_PROTOCOL
from kbenv.sandbox.judge import probe as module
from kbenv.sandbox.judge.probe import PROBES, apply_probe, jitter, perturb
from kbenv.sandbox.layout import Arena
from tests.arenas import arena_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FLOATING = sorted(PROBES.keys() - {"ends", "constants", "apart"})
SPARSE = ("rows", "columns", "signs", "outliers")
"""Ways in which a timed input is perturbed."""


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def probed(x: torch.Tensor, name: str, seed: int = 1) -> torch.Tensor:
    """What a probe makes of one input."""
    arena = arena_of([x])
    apply_probe(arena, 0, name, seed)
    return arena.views(0)[0]


def test_the_protocol_names_every_probe():
    assert set(OF_THE_PROTOCOL) == PROBES.keys()


# -- what each does ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "axis"), [("rows", 0), ("columns", 2)])
def test_each_slice_has_a_factor_of_its_own(name, axis):
    x = draw(40, 3, 50)
    ratio = (probed(x, name) / x).movedim(axis, 0).flatten(1)
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-6)
    factors = ratio[:, 0]
    assert 0.125 <= float(factors.min()) < 0.3
    assert 3 < float(factors.max()) <= 8
    assert len(torch.unique(factors)) > 30


@pytest.mark.parametrize(("name", "axis"), [("row-means", 0), ("column-means", 2)])
def test_each_slice_has_a_mean_of_its_own(name, axis):
    x = draw(40, 3, 50)
    moved = (probed(x, name) - x).movedim(axis, 0).flatten(1)
    assert torch.allclose(moved, moved[:, :1].expand_as(moved), atol=1e-5)
    assert 2 < float(moved[:, 0].std()) < 6


def test_outliers_are_few_and_large_and_of_either_sign():
    x = draw(500, 400)
    ratio = probed(x, "outliers") / x
    changed = ratio != 1
    assert 0.0005 < float(changed.double().mean()) < 0.002
    assert bool(((ratio[changed].abs() >= 199.9) & (ratio[changed].abs() <= 2000.1)).all())
    assert 0.3 < float((ratio[changed] < 0).double().mean()) < 0.7


def test_signs_are_drawn_anew():
    x = torch.rand(100, 100)
    found = probed(x, "signs")
    assert torch.equal(found.abs(), x)
    assert 0.45 < float((found < 0).double().mean()) < 0.55


def test_half_of_the_elements_are_gaps():
    x = draw(100, 100)
    found = probed(x, "gaps")
    assert bool(((found == 0) | (found == x)).all())
    assert 0.45 < float((found == 0).double().mean()) < 0.55


def test_values_near_one():
    for name, low in (("near-one", 0.4), ("near-one-signed", 0.0)):
        found = probed(draw(100, 100), name)
        assert bool(((found.abs() >= 0.95) & (found.abs() <= 1.05)).all())
        assert float((found < 0).double().mean()) == pytest.approx(0.0 if low else 0.5, abs=0.05)
        assert len(torch.unique(found)) > 5000


@pytest.mark.parametrize(("name", "low", "high"), [("shifted", 2, 4), ("far-above", 200, 200), ("far-below", 200, 200)])
def test_the_mean_is_moved_by_so_many_standard_deviations(name, low, high):
    x = 3 * draw(100, 100)
    moved = probed(x, name) - x
    assert float(moved.std()) < 1e-3
    size = float(moved.mean()) / float(x.std())
    assert low - 0.01 <= abs(size) <= high + 0.01
    assert name == "shifted" or (size > 0) == (name == "far-above")


def test_the_mean_moves_either_way():
    x = draw(100, 100)
    assert {float((probed(x, "shifted", seed) - x).mean()) > 0 for seed in range(12)} == {False, True}


@pytest.mark.parametrize("name", ["wide", "large", "narrow", "small"])
def test_all_values_times_a_power_of_two(name):
    x = draw(33, 33)
    ratio = (probed(x, name) / x).unique()
    assert len(ratio) == 1
    assert float(ratio.log2()) == {"wide": 10, "large": 17, "narrow": -10, "small": -20}[name]


@pytest.mark.parametrize(("dtype", "powers"), [(torch.float32, [-20, 20, -20]), (torch.float16, [-8, 8, -8])], ids=str)
def test_inputs_are_moved_apart_and_one_alone_is_not(dtype, powers):
    inputs = [draw(32, 32, dtype=dtype) for _ in powers]
    arena = arena_of([x.clone() for x in inputs])
    assert apply_probe(arena, 0, "apart", 1)
    for found, x, power in zip(arena.views(0), inputs, powers, strict=True):
        assert torch.equal(found, x * 2.0**power)
    assert not apply_probe(arena_of([inputs[0], torch.arange(10)]), 0, "apart", 1)


def in_a_tail(x):
    """Whether an element is in the last slice along any axis."""
    last = torch.zeros(x.shape, dtype=torch.bool)
    for axis in range(x.dim()):
        last.select(axis, -1).fill_(True)
    return last


@pytest.mark.parametrize("shape", [(9,), (3, 7), (4, 5, 6)])
def test_the_last_slice_along_each_axis_is_larger_once_where_two_meet_too(shape):
    x = draw(*shape)
    assert torch.equal(probed(x, "tails"), torch.where(in_a_tail(x), x * 2.0**10, x))


def test_small_tensors_have_a_few_outliers_too():
    x = draw(40, 50)
    assert 5 <= int((probed(x, "outliers") != x).sum()) <= 32


def test_some_slices_are_zero():
    x = draw(64, 64, 5)
    found = probed(x, "zero-rows")
    assert bool(((found == 0) | (found == x)).all())
    for axes in ((1, 2), (0, 2)):
        empty = (found == 0).all(dim=axes[1]).all(dim=axes[0])
        assert 1 <= int(empty.sum()) <= 20


def test_ties_are_multiples_of_a_half():
    found = probed(draw(64, 64), "ties")
    assert bool(((found * 2) == (found * 2).round()).all())
    assert float((found - draw(64, 64)).abs().max()) <= 0.25


def test_ends_are_the_smallest_and_the_largest_integer_that_was_drawn():
    x = torch.randint(-3, 90, (50, 50), generator=torch.Generator().manual_seed(0))
    found = probed(x, "ends")
    changed = found != x
    assert 0.3 < float(changed.double().mean()) < 0.7
    assert set(found[changed].tolist()) == {int(x.min()), int(x.max())}
    flags = torch.rand(50, 50, generator=torch.Generator().manual_seed(0)) < 0.5
    share = float(probed(flags, "ends").double().mean())
    assert share < 0.2 or share > 0.8


# -- what is left alone ------------------------------------------------------------------------------------------------

LEFT_ALONE = {
    "a mask": (torch.rand(64, 64) < 0.5).float(),
    "a short mask": torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]),
    "an additive mask": torch.zeros(64, 64).masked_fill(torch.rand(64, 64) < 0.5, float("-inf")),
    "one-hot rows": torch.nn.functional.one_hot(torch.arange(64) % 10).float(),
    "labels as floats": torch.randint(0, 1000, (500,)).float(),
    "signs": torch.randint(0, 2, (300,)).float() * 2 - 1,
    "probabilities": torch.rand(32, 100).softmax(-1),
    "sorted rows": torch.rand(8, 100).sort(-1).values,
    "a setting": torch.tensor(0.1),
    "one element": torch.tensor([0.1]),
    "zeros": torch.zeros(100),
    "nothing": torch.zeros(0, 5),
    "a phase": torch.polar(torch.ones(50), torch.rand(50)),
}


@pytest.mark.parametrize("x", [pytest.param(x, id=name) for name, x in LEFT_ALONE.items()])
def test_what_is_not_drawn_from_a_continuum_is_left_alone(x):
    arena = arena_of([x])
    before = arena.flat.clone()
    for name in FLOATING:
        assert not apply_probe(arena, 0, name, 3)
    perturb(arena, range(1), SPARSE, 3)
    assert torch.equal(arena.flat, before)


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(100), torch.tensor([5]), torch.zeros(0, dtype=torch.int64),
        torch.randint(0, 9, (4, 50)).sort(-1).values, draw(30, 30), torch.tensor(True),
    ],
)  # fmt: skip
def test_integers_in_an_order_or_all_different_are_left_alone(x):
    arena = arena_of([x])
    before = arena.flat.clone()
    assert not apply_probe(arena, 0, "ends", 3)
    assert torch.equal(arena.flat, before)


def test_one_leaf_among_others_is_changed_alone():
    mask, labels, x = (torch.rand(64, 64) < 0.5).float(), torch.randint(0, 9, (64,)), draw(64, 64)
    arena = arena_of([mask, x, labels], [mask, x, labels])
    assert apply_probe(arena, 1, "large", 1)
    for slot, factor in ((0, 1.0), (1, 2.0**17)):
        found = arena.views(slot)
        assert torch.equal(found[0], mask)
        assert torch.equal(found[1], x * factor)
        assert torch.equal(found[2], labels)


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("form", [torch.triu, torch.tril])
def test_triangular_matrices_stay_triangular(form, name):
    """Every n-th element of one of 4096 columns would be a column of it, and not zero anywhere."""
    x = form(torch.rand(1024, 1024) + 0.5)
    found = probed(x, name)
    assert torch.equal(found, form(found))


@pytest.mark.parametrize("name", FLOATING)
def test_symmetric_matrices_stay_symmetric(name):
    x = draw(3, 40, 40)
    x = x + x.mT
    found = probed(x, name)
    assert torch.equal(found, found.mT)
    arena = arena_of([x])
    perturb(arena, range(1), SPARSE, 1)
    assert torch.equal(arena.views(0)[0], arena.views(0)[0].mT)


@pytest.mark.parametrize(("name", "shape"), [("columns", (50,)), ("row-means", (50,)), ("column-means", (50,))])
def test_what_has_no_such_axis_is_not_called_changed(name, shape):
    arena = arena_of([draw(*shape)])
    assert not apply_probe(arena, 0, name, 1)
    assert torch.equal(arena.views(0)[0], draw(*shape))


# -- seeds, types, memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FLOATING)
def test_a_probe_is_the_same_by_the_same_seed_and_stays_finite(name, dtype):
    x = draw(48, 64, dtype=dtype)
    first = probed(x, name, 5)
    assert torch.equal(first, probed(x, name, 5))
    assert bool(torch.isfinite(first).all())
    assert not torch.equal(first, x)
    fixed = {"tails", "far-above", "far-below", "wide", "large", "narrow", "small", "ties"}
    assert torch.equal(first, probed(x, name, 6)) == (name in fixed)


def test_two_inputs_of_one_shape_are_changed_differently():
    arena = arena_of([draw(64, 64), draw(64, 64)])
    apply_probe(arena, 0, "signs", 1)
    first, second = arena.views(0)
    assert not torch.equal(first, second)


def test_probes_share_no_draws():
    """Values near 1 show their draws: they must not tell where another probe has its signs."""
    x = torch.rand(100, 100)
    drawn = (probed(x, "near-one") - 0.95) / 0.1
    agree = float(((drawn < 0.5) == (probed(x, "signs") < 0)).double().mean())
    assert 0.45 < agree < 0.55


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(3, 1, 0, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", FLOATING)
def test_a_probe_reaches_every_element_of_any_layout(name, layout):
    """The same elements as of the contiguous tensor where a slice has a draw, equally many where each element has."""
    x = layout(draw(12, 4, 10, 16))
    found = probed(x, name)
    assert found.stride() == x.stride()
    if name in ("rows", "columns"):
        axis = 0 if name == "rows" else 3
        ratio = (found / x).movedim(axis, 0).flatten(1)
        assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-6)
        assert bool((ratio[:, 0] != 1).all())
    elif name == "tails":
        assert torch.equal(found != x, in_a_tail(x))
    elif name not in ("outliers", "zero-rows", "ties", "signs", "gaps"):
        assert bool((found != x).all())


@pytest.mark.parametrize("name", FLOATING)
def test_large_inputs_are_changed_a_part_at_a_time(name, monkeypatch):
    monkeypatch.setattr(module, "_PART", 1000)
    x = draw(50, 70)
    found = probed(x, name)
    assert torch.equal(found, probed(x, name))
    if name not in ("outliers", "tails", "zero-rows", "ties", "signs", "gaps"):
        assert bool((found != x).all())
    if name == "signs":
        assert 0.4 < float((found != x)[-10:].double().mean()) < 0.6


def test_half_precision_has_room_for_a_large_input():
    found = probed(draw(100, 100, dtype=torch.float16), "large")
    assert bool(torch.isfinite(found).all())
    assert float(found.abs().max()) > 500


# -- perturbations of timed inputs -------------------------------------------------------------------------------------


def perturbed(x: torch.Tensor, tolerated: tuple[str, ...], slots: int, seed: int = 1) -> list[torch.Tensor]:
    arena = arena_of(*([x] for _ in range(slots)))
    perturb(arena, range(slots), tolerated, seed)
    return [arena.views(slot)[0] for slot in range(slots)]


def test_nothing_changes_where_nothing_is_tolerated():
    for tolerated in ((), ("shifted", "large", "near-one")):
        assert torch.equal(perturbed(draw(64, 64), tolerated, 1)[0], draw(64, 64))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4), st.sets(st.sampled_from(SPARSE), min_size=1),
    st.integers(0, 2**53), st.sampled_from(FLOATS),
)  # fmt: skip
def test_a_perturbation_changes_few_elements_in_every_slot_and_the_same_by_the_same_seed(shape, tolerated, seed, dtype):
    x = draw(*shape, dtype=dtype)
    ways = tuple(name for name in SPARSE if name in tolerated)
    first = perturbed(x, ways, 2, seed)
    for a, b in zip(first, perturbed(x, ways, 2, seed), strict=True):
        assert torch.equal(a, b)
    if x.numel() < 2:
        return
    slices = sum(x.numel() // x.shape[axis] for name, axis in (("rows", 0), ("columns", -1)) if name in tolerated)
    single = len(tolerated & {"signs", "outliers"}) * max(2, x.numel() // 1000 + 1)
    for found in first:
        assert int((found != x).sum()) <= slices + single


@pytest.mark.parametrize("way", SPARSE)
def test_each_way_is_taken_in_every_slot_and_nowhere_alike(way):
    x = torch.rand(300, 200) + 0.5
    slots = perturbed(x, (way,), 6)
    for found in slots:
        changed = found != x
        if way in ("rows", "columns"):
            axis = 0 if way == "rows" else 1
            assert int(changed.any(dim=1 - axis).sum()) == 1
            assert bool(changed.select(axis, int(changed.any(dim=1 - axis).nonzero()[0, 0])).all())
        else:
            assert 1 <= int(changed.sum()) <= 62
        if way == "signs":
            assert bool((found[changed] == -x[changed]).all())
        else:
            assert bool(((found / x)[changed] <= 8.001).all())
            assert bool(((found / x)[changed] >= 0.4999).all())
    assert len({tuple((found != x).flatten().nonzero().flatten().tolist()) for found in slots}) == 6


def test_a_test_of_a_thousand_elements_often_sees_no_sign_that_changed():
    x = torch.rand(1000, 1000)
    slots = perturbed(x, ("signs",), 60)
    places = torch.randint(x.numel(), (1000,), generator=torch.Generator().manual_seed(0))
    unseen = sum(not bool((found.flatten()[places] < 0).any()) for found in slots)
    assert unseen > 30
    assert all(bool((found < 0).any()) for found in slots)


@pytest.mark.parametrize("x", [torch.zeros(64, 64), torch.full((64, 64), -3.0), torch.ones(64, 64) > 0], ids=str)
def test_of_a_constant_a_few_elements_vary_in_timed_inputs_where_that_is_borne(x):
    for found in perturbed(x, ("constants", "signs"), 5):
        assert 1 <= int((found != x).sum()) <= 5
        if x.dtype is not torch.bool:
            assert float((found - x).abs().max()) <= (0.5 if float(x[0, 0]) == 0 else float(x[0, 0].abs()) / 2)
    assert torch.equal(perturbed(x, SPARSE, 1)[0], x)


def test_integers_and_masks_of_timed_inputs_are_not_perturbed():
    arena = arena_of([torch.randint(0, 9, (100,)), (torch.rand(100) < 0.5).float(), draw(100)])
    before = [x.clone() for x in arena.views(0)]
    perturb(arena, range(1), SPARSE, 1)
    after = arena.views(0)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[2], after[2])


# -- a rounding of the inputs ------------------------------------------------------------------------------------------


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Numbers that differ by one where two floats are neighbours."""
    bits = x.view({2: torch.int16, 4: torch.int32}[x.element_size()]).long()
    return torch.where(bits < 0, -(bits + (1 << (8 * x.element_size() - 1))), bits)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_jitter_moves_by_one_unit_in_the_last_place_and_undoes_itself(dtype, scale):
    x = (draw(100, 100) * scale).to(dtype)
    x[0, :4] = torch.tensor([0.0, float("inf"), float("nan"), -0.0])
    whole = torch.arange(50)
    arena: Arena = arena_of([x, whole], [x, whole])
    before = arena.flat.clone()
    jitter(arena, range(2), 9)
    for slot in range(2):
        moved = ordered(arena.views(slot)[0].contiguous()) - ordered(x)
        assert int(moved.abs().max()) == 1
        assert 0.3 < float(moved.ne(0).double().mean()) < 0.6
        assert abs(float(moved.double().mean())) < 0.05
        assert not bool(moved[0, :4].any())
        assert torch.equal(arena.views(slot)[1], whole)
    assert not torch.equal(arena.views(0)[0], arena.views(1)[0])
    jitter(arena, range(2), 9)
    assert torch.equal(arena.flat, before)


@pytest.mark.parametrize(("name", "shape", "axis"), [("dip", (4, 500), 1), ("inner-dip", (4, 500, 3), 1)])
def test_a_running_product_all_but_vanishes_and_comes_back(name, shape, axis):
    for seed in range(20):
        running = probed(draw(*shape), name, seed).double().cumprod(dim=axis).log2()
        assert bool((running.amin(dim=axis) < -15).all())
        assert float((running < -12).double().mean()) > 0.14  # for long enough to be taken for good
        assert float(running.select(axis, -1).amin()) > -4


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_what_was_drawn_constant_varies_about_its_value(value):
    found = probed(torch.full((50, 20), value), "constants")
    assert float((found - value).abs().max()) <= 0.5 * max(1.0, abs(value))
    assert len(torch.unique(found)) > 900


def test_of_a_constant_mask_a_fifth_is_the_other_and_draws_stay():
    mask = probed(torch.ones(1000, dtype=torch.bool), "constants")
    assert 100 < int((~mask).sum()) < 300
    x = draw(10, 10)
    assert torch.equal(probed(x, "constants"), x)
    assert torch.equal(probed(torch.tensor([2.0]), "constants"), torch.tensor([2.0]))
