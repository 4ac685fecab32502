"""The calibrated tolerance: any element or block outside is found, at the output's own scale; the reference passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kbenv.sandbox.judge import calibration as module
from kbenv.sandbox.judge.blocks import block_length, float64_leaf, slice_length
from kbenv.sandbox.judge.calibration import (
    Calibration,
    Closer,
    Rule,
)
from kbenv.sandbox.judge.compare import Comparison, tied_indices
from kbenv.sandbox.layout import leaf_of
from tests.arenas import arena_of

INF, NAN = math.inf, math.nan
RULE = Rule(element_factor=16.0, element_floor=5e-5, rms_factor=4.0, rms_floor=2e-5)
"""Numbers of these tests: the protocol's own are tested on real arithmetic, in test_precision.py."""
COMPLEX = {torch.complex64: torch.complex128}


@dataclass
class Reference:
    """What stands for a reference's runs on the same inputs, all of one output, by slot.

    `exact` is in float64; the variants and `fp32` are in the output's own dtype.
    """

    exact: list[torch.Tensor]
    fp32: list[torch.Tensor]
    variants: list[list[torch.Tensor]]

    def judge(self, found: list[torch.Tensor], rule: Rule = RULE, *, lasting: bool = True) -> Comparison:
        """Every slot of `found`, calibrated first."""
        calibration, into = Calibration(rule, "cpu"), Comparison()
        exact, fp32 = arena_of(*([x] for x in self.exact)), arena_of(*([x] for x in self.fp32))
        for slot in range(len(self.exact)):
            calibration.begin(exact, slot)
            for variant in (self.fp32, *self.variants):
                calibration.add_variant(exact, arena_of(*([x] for x in variant)), slot)
            calibration.finish(slot, lasting=lasting)
        for slot in range(len(self.exact)):
            into.merge(calibration.compare(exact, arena_of(*([x] for x in found)), slot, fp32, []))
        return into


def widened(x: torch.Tensor) -> torch.Tensor:
    """The same in float64 or complex128; integers as they are."""
    return x.to(COMPLEX.get(x.dtype, torch.float64)) if x.is_floating_point() or x.is_complex() else x.clone()


def reference(exact: torch.Tensor, *variants: torch.Tensor, dtype: torch.dtype = torch.float32) -> Reference:
    """Of one slot: fp32 is the exact output rounded."""
    return Reference([exact], [exact.to(dtype)], [[variant] for variant in variants])


def like(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` in the memory layout of `x`."""
    return torch.empty_strided(x.shape, x.stride(), dtype=values.dtype).copy_(values)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 600)


# -- any element moved is found, whatever the shape --------------------------------------------------------------------


@st.composite
def laid_out(draw: st.DrawFn) -> torch.Tensor:
    """Zeros of some shape in some order of memory."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 33, 64, 300]), max_size=4))
    assume(math.prod(shape) <= 6000)
    order = draw(st.permutations(range(len(shape))))
    return torch.zeros([shape[axis] for axis in order]).permute(sorted(range(len(shape)), key=lambda a: order[a]))


REAL = (torch.float32, torch.float16, torch.bfloat16)


@st.composite
def references(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = (*REAL, torch.complex64)) -> Reference:
    """One to three slots; nothing is zero; a variant of the reference is off by some three in a thousand at most."""
    dtype = draw(st.sampled_from(dtypes))
    form, slots = draw(laid_out()), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    noise = draw(st.sampled_from([0.0, 1e-6, 3e-3]))
    made = Reference([], [], [[]])
    for _ in range(slots):
        x = torch.randn(form.shape, generator=generator, dtype=torch.float64)
        if dtype.is_complex:
            x = torch.complex(x, torch.randn(form.shape, generator=generator, dtype=torch.float64))
        x = like(form, x + 0.1 * x.sgn())
        off = 1 + noise * torch.randn(form.shape, generator=generator, dtype=torch.float64)
        made.exact.append(x)
        made.fp32.append(x.to(dtype))
        made.variants[0].append((x * off).to(dtype))
    return made


def allowed(case: Reference, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
    """By element, in the order of memory, and alone off: the documented bound, and what its block's root mean square
    bears at least, computed another way. For real numbers, none zero."""
    leaf = leaf_of(case.fp32[slot])
    length = block_length(leaf)

    def blocks(x: torch.Tensor) -> list[torch.Tensor]:
        flat = arena_of([x]).flat_leaf(0, 0)
        return [block.double().abs() for block in flat.split(length)]

    def rms(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([part.square().mean().sqrt() for part in parts])

    def spread(slot: int) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Errors by block, the largest by block, and the typical relative error."""
        errors = [blocks(widened(run[slot]) - case.exact[slot]) for run in (case.fp32, *case.variants)]
        error = torch.stack([rms(parts) for parts in errors]).amax(dim=0)
        largest = torch.stack([torch.stack([part.max() for part in parts]) for parts in errors]).amax(dim=0)
        squares = torch.stack([torch.stack([p.square().sum() for p in parts]) for parts in errors]).amax(dim=0)
        sizes = torch.stack([part.square().sum() for part in blocks(case.exact[slot])])
        many = len(sizes) >= 8
        relative = (squares / sizes).median().sqrt() if many else (squares.sum() / sizes.sum()).sqrt()
        return error, largest, float(relative)

    relative = max(spread(other)[2] for other in range(len(case.exact)))
    error, largest, _ = spread(slot)
    values = blocks(case.exact[slot])
    bounds, borne = [], []
    for block, value, off, burst in zip(values, rms(values), error, largest, strict=True):
        size = block.clamp(min=float(value))
        usual = 16 * torch.maximum(torch.maximum(off, value * relative), relative * size)
        bounds.append(torch.maximum(usual, 4 * burst) + 5e-5 * size)
        most = 4 * max(float(off), float(value * relative)) * math.sqrt(len(block)) if len(block) >= 32 else INF
        borne.append(torch.full_like(block, most))
    return torch.cat(bounds), torch.cat(borne)


@settings(max_examples=150, deadline=None)
@given(references(REAL), st.data())
def test_any_element_moved_by_more_than_its_bound_is_found_and_by_half_of_it_is_not(case, data):
    assert case.judge(case.fp32).passed
    slot = data.draw(st.integers(0, len(case.exact) - 1))
    bound, borne = allowed(case, slot)
    at = data.draw(st.integers(0, len(bound) - 1))
    factor = data.draw(st.sampled_from([1.05, -1.05, 20.0, 0.5, -0.5]))
    found = [x.clone() for x in case.fp32]
    arena = arena_of([found[slot]])
    exact = arena_of([case.exact[slot]]).flat_leaf(0, 0)[at]
    arena.flat_leaf(0, 0)[at] = exact + factor * bound[at]
    found[slot] = like(found[slot], arena.views(0)[0])
    off = abs(float(arena.flat_leaf(0, 0)[at].double() - exact))  # as far as the output's type can say it
    comparison = case.judge(found)
    if off > bound[at] * (1 + 1e-9):
        assert not comparison.passed
        assert comparison.tolerance_used > 1
        assert comparison.first is not None
    elif off <= 0.51 * bound[at] and off <= 0.5 * borne[at]:
        assert comparison.passed, comparison


@settings(max_examples=40, deadline=None)
@given(references((torch.complex64,)), st.booleans(), st.data())
def test_either_part_of_a_complex_number_is_judged(case, imaginary, data):
    assert case.judge(case.fp32).passed
    slot = data.draw(st.integers(0, len(case.exact) - 1))
    at = data.draw(st.integers(0, case.exact[slot].numel() - 1))
    found = [x.clone() for x in case.fp32]
    arena = arena_of([found[slot]])
    arena.flat_leaf(0, 0)[at] += 10j if imaginary else 10.0
    found[slot] = like(found[slot], arena.views(0)[0])
    comparison = case.judge(found)
    assert not comparison.passed
    assert comparison.first is not None


@settings(max_examples=60, deadline=None)
@given(laid_out(), st.sampled_from([torch.int64, torch.int32, torch.uint8, torch.bool]), st.data())
def test_any_integer_or_boolean_that_differs_is_found(form, dtype, data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    whole = [like(form, torch.randint(0, 2, form.shape, generator=generator).to(dtype)) for _ in range(2)]
    case = Reference(whole, whole, [whole])
    assert case.judge(whole).passed
    slot, at = data.draw(st.integers(0, 1)), data.draw(st.integers(0, form.numel() - 1))
    found = [x.clone() for x in whole]
    arena = arena_of([found[slot]])
    arena.flat_leaf(0, 0)[at] = 1 - arena.flat_leaf(0, 0)[at].int()
    found[slot] = like(form, arena.views(0)[0])
    assert case.judge(found).mismatched == 1


@settings(max_examples=60, deadline=None)
@given(references(), st.data())
def test_a_permutation_of_equal_results_is_equal(case, data):
    """Swapping elements that are equal, and judging both sides in another order of memory, changes nothing."""
    order = data.draw(st.permutations(range(case.exact[0].dim())))
    turned = Reference(
        [x.permute(order).contiguous() for x in case.exact],
        [x.permute(order).contiguous() for x in case.fp32],
        [[x.permute(order).contiguous() for x in run] for run in case.variants],
    )
    assert turned.judge(turned.fp32).passed
    assert turned.judge(turned.variants[0]).passed
    ones = [torch.ones_like(x) for x in case.exact]
    equal = Reference(ones, [like(x, torch.ones(x.shape, dtype=x.dtype)) for x in case.fp32], case.variants)
    shuffled = [x.flatten()[torch.randperm(x.numel())].view(x.shape) for x in equal.fp32]
    assert equal.judge([like(x, y) for x, y in zip(equal.fp32, shuffled, strict=True)]).mismatched == 0


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from([(4096,), (6, 700), (3, 40, 33), (2, 5000), (64, 32)]),
    st.sampled_from([0.5, 1.0, 4.0]),
)  # fmt: skip
def test_every_run_of_the_reference_passes_however_its_errors_are_distributed(seed, shape, tail):
    """Errors over many magnitudes: a few elements of a block may hold nearly all of it."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(shape, generator=generator, dtype=torch.float64)
    off = torch.randn(shape, generator=generator, dtype=torch.float64)
    variant = (exact + 1e-4 * off.abs() ** tail * off.sgn() * torch.exp(tail * off)).float()
    assert reference(exact, variant).judge([variant]).tolerance_used <= 0.26


# -- at the output's own scale -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [64, 256, 1000, 4096, 10_000])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_a_rows_error_is_judged_at_the_rows_scale(columns, scale):
    generator = torch.Generator().manual_seed(columns)
    factors = torch.tensor([1e-6, 1e-3, 1.0, 1e3, 1e6], dtype=torch.float64)
    exact = torch.randn(5, columns, generator=generator, dtype=torch.float64) * factors[:, None]
    row = factors.tolist().index(scale)
    case = reference(exact)
    for error, passes in ((1e-5, True), (1e-3, False)):
        found = exact.clone()
        found[row] *= 1 + error * torch.randn(columns, generator=generator, dtype=torch.float64)
        comparison = case.judge([found.float()])
        assert comparison.passed is passes
        assert passes or comparison.first["index"][0] == row
    whole = exact.clone()
    whole[row, columns // 2] += 0.01 * scale
    assert case.judge([whole.float()]).mismatched == 1


def test_outputs_far_below_one_are_judged_at_their_own_scale():
    """A softmax over 40,000 columns: the largest error of one in bfloat16 is 2e-7."""
    probabilities = torch.randn(4, 40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    case = reference(probabilities)
    assert case.judge([probabilities.float() * (1 + 1e-6)]).passed
    assert not case.judge([probabilities.bfloat16().float()]).passed
    assert not case.judge([torch.zeros(4, 40_000)]).passed


def test_a_burst_of_errors_in_one_block_loosens_no_other():
    exact = torch.randn(64, 512, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    burst = exact.clone()
    burst[5] *= 1.1
    case = reference(exact, burst.float())
    assert case.judge([burst.float()]).passed
    for row, passes in ((5, True), (4, False), (63, False)):
        found = exact.clone()
        found[row] *= 1.001
        assert case.judge([found.float()]).passed is passes, row


def test_a_few_errors_of_a_block_leave_the_others_their_bound():
    exact = torch.ones(1, 1024, dtype=torch.float64)
    variant = exact.clone()
    variant[0, 7] = 1.001
    case = reference(exact, variant.float())
    found = exact.clone()
    found[0, 8:72] = 1.001  # as far off, but not as seldom
    assert case.judge([variant.float()]).passed
    assert not case.judge([found.float()]).passed
    found = exact.clone()
    found[0, 8] = 1.005
    assert not case.judge([found.float()]).passed


def test_rows_of_thirty_two_elements_are_judged_as_blocks_too():
    exact = torch.rand(100, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5
    assert reference(exact).judge([(exact * (1 + 3e-5)).float()]).mismatched == 3200


# -- zeros -------------------------------------------------------------------------------------------------------------


def test_where_all_is_zero_nothing_but_zero_passes_save_what_may_be_flushed():
    zero = torch.zeros(4, 300, dtype=torch.float64)
    case = reference(zero)
    assert case.judge([torch.full((4, 300), -0.0)]).passed
    assert case.judge([torch.full((4, 300), 1e-40)]).passed
    assert case.judge([torch.full((4, 300), 1e-30)]).mismatched == 1200


def test_zero_has_no_sign():
    exact = torch.tensor([0.0, -0.0] * 150, dtype=torch.float64)
    assert reference(exact).judge([-exact.float()]).tolerance_used == 0.0


def test_a_block_cut_off_but_for_a_few_is_judged_at_its_slices_scale():
    """A dead channel behind a ReLU: honest rounding lifts another element of it above zero than the reference's."""
    generator = torch.Generator().manual_seed(3)
    before = torch.randn(2, 8, 16, 64, dtype=torch.float64, generator=generator)
    before[0, 3] -= 8.0
    before[0, 3, 5, 7] = 1e-6  # the only one of its channel, and within the noise
    exact = before.relu()
    variant = (before * (1 + 1e-4 * torch.randn(before.shape, generator=generator, dtype=torch.float64))).relu()
    case = reference(exact, variant.float())
    found = exact.float()
    found[0, 3, 5, 7] = 0.0
    found[0, 3, 9, 9] = 1e-5
    assert case.judge([found]).passed
    found[0, 3, 9, 9] = 0.1
    assert case.judge([found]).mismatched == 1
    assert not case.judge([exact.float() * (1 + 1e-3)]).passed


def test_zeros_among_others_leave_a_block_its_own_scale():
    generator = torch.Generator().manual_seed(4)
    exact = torch.randn(2, 4, 16, 64, dtype=torch.float64, generator=generator).relu()
    exact[:, 2] *= 1e-3
    found = exact.clone()
    found[0, 2] *= 1 + 2e-3
    assert not reference(exact).judge([found.float()]).passed


# -- what is not finite ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "fp32", "found", "passes"),
    [
        (NAN, NAN, NAN, True), (INF, INF, INF, True), (-INF, -INF, -INF, True),
        (NAN, NAN, 0.0, False), (INF, INF, 3e38, False), (INF, INF, -INF, False), (-INF, -INF, NAN, False),
        (1.0, 1.0, NAN, False), (1.0, 1.0, INF, False),
        (2.0, NAN, 2.0, True), (2.0, NAN, NAN, True), (2.0, NAN, 2.5, False), (2.0, INF, -INF, False),
        (1e39, INF, INF, True), (1e39, INF, 3e38, False), (1e300, INF, INF, True),
        (INF, 3e38, 3e38, True), (NAN, 1.0, 1.0, True), (INF, 1.0, 1.5, False), (NAN, 1.0, NAN, False),
    ],
)  # fmt: skip
def test_what_is_not_finite_stands_as_in_fp32_or_as_float64_says(expected, fp32, found, passes):
    exact = torch.linspace(1, 2, 300, dtype=torch.float64)
    exact[77] = expected
    own, other = exact.float(), exact.float()
    own[77], other[77] = fp32, found
    comparison = Reference([exact], [own], []).judge([other])
    assert comparison.passed is passes
    assert comparison.mismatched == (not passes)


@pytest.mark.parametrize("huge", [INF, 1e39, 1e200])
def test_what_only_float64_can_hold_loosens_nothing_beside_it(huge):
    exact = torch.linspace(1, 2, 300, dtype=torch.float64)
    exact[10] = huge
    found = exact.float()
    assert reference(exact).judge([found]).passed
    found[11] *= 1.001
    assert reference(exact).judge([found]).mismatched == 1


def test_masked_elements_leave_the_others_their_tolerance():
    exact = torch.randn(16, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    exact[:, 100:] = -INF
    case = reference(exact)
    assert case.judge([exact.float()]).passed
    assert not case.judge([exact.float() * (1 + 1e-3)]).passed
    assert case.judge([exact.float().nan_to_num(neginf=-1e38)]).mismatched == 16 * 156


# -- integers whose value is unsure ------------------------------------------------------------------------------------


def test_where_the_references_runs_disagree_any_of_their_integers_passes_and_no_other(small_chunks):
    exact = torch.arange(2000) % 7
    variant = exact.clone()
    variant[[3, 1500]] = torch.tensor([6, 0])
    case = Reference([exact], [exact], [[variant]])
    assert case.judge([exact]).passed
    assert case.judge([variant]).passed
    for at in (3, 1500, 4):
        found = variant.clone()
        found[at] = 5
        comparison = case.judge([found])
        assert comparison.mismatched == 1
        assert comparison.first["index"] == [at]


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1,), (1, 1, 1)], ids=str)
def test_outputs_of_no_element_and_of_one(shape, dtype):
    x = torch.ones(shape).to(dtype)
    case = Reference([widened(x)], [x], [[x]])
    comparison = case.judge([x])
    assert (comparison.elements, comparison.mismatched) == (x.numel(), 0)
    if x.numel():
        assert case.judge([torch.zeros_like(x)]).mismatched == 1


def test_a_scalars_tolerance_comes_from_its_errors_in_all_trials():
    """One trial's own error may be nearly nothing by chance."""
    case = Reference(
        [torch.tensor(1.0, dtype=torch.float64)] * 3,
        [torch.tensor(1.0)] * 3,
        [[torch.tensor(1.0 + 1e-3), torch.tensor(1.0), torch.tensor(1.0 - 2e-3)]],
    )
    assert case.judge([torch.tensor(1.0 + 0.03)] * 3).passed
    assert case.judge([torch.tensor(1.0), torch.tensor(1.04), torch.tensor(1.0)]).mismatched == 1
    assert not case.judge([torch.tensor(1.001)] * 3, lasting=False).passed


def test_what_a_probe_shows_of_the_reference_loosens_no_later_check():
    calibration = Calibration(RULE, "cpu")
    exact, off = torch.ones(1, 300, dtype=torch.float64), torch.full((1, 300), 1.02)
    arena, fp32 = arena_of([exact]), arena_of([exact.float()])
    calibration.begin(arena, 0)
    calibration.add_variant(arena, arena_of([off]), 0)
    assert calibration.finish(0, lasting=False) == pytest.approx(0.02, rel=1e-3)
    assert calibration.compare(arena, arena_of([off]), 0, fp32, []).passed
    calibration.begin(arena, 0)
    calibration.add_variant(arena, fp32, 0)
    assert calibration.finish(0, lasting=True) == 0.0
    assert not calibration.compare(arena, arena_of([torch.full((1, 300), 1.001)]), 0, fp32, []).passed


def test_a_slot_is_judged_by_what_was_calibrated_last_for_it():
    calibration = Calibration(RULE, "cpu")
    for scale in (1.0, 1e-3):
        exact = torch.full((300,), scale, dtype=torch.float64)
        arena, fp32 = arena_of([exact], [exact]), arena_of([exact.float()], [exact.float()])
        calibration.begin(arena, 1)
        calibration.add_variant(arena, fp32, 1)
        calibration.finish(1, lasting=True)
        assert calibration.compare(arena, fp32, 1, fp32, []).passed
        assert (
            calibration.compare(arena, arena_of([exact.float()], [exact.float() * 1.01]), 1, fp32, []).mismatched == 300
        )


def test_float64_may_stand_in_one_slot_of_its_own():
    exact = arena_of([torch.linspace(1, 2, 64, dtype=torch.float64)])
    runs = arena_of([torch.zeros(64)], [torch.linspace(1, 2, 64)])
    calibration = Calibration(RULE, "cpu")
    calibration.begin(exact, 1, row=0)
    calibration.add_variant(exact, runs, 1, row=0)
    calibration.finish(1, lasting=True)
    assert calibration.compare(exact, runs, 1, runs, [], row=0).passed
    assert not calibration.compare(exact, arena_of([torch.zeros(64)], [torch.ones(64)]), 1, runs, [], row=0).passed


@pytest.mark.parametrize(
    ("tensor", "block", "whole"),
    [
        (torch.zeros(8, 300), 300, 300), (torch.zeros(8, 31), 256, 31), (torch.zeros(4, 3, 32, 48), 48, 3 * 32 * 48),
        (torch.zeros(2, 10_000), 1000, 10_000), (torch.zeros(2, 4099), 1024, 4099), (torch.zeros(()), 256, 1),
        (torch.zeros(70), 70, 70), (torch.zeros(5, 1), 256, 5), (torch.zeros(0, 4), 256, 1),
        (torch.zeros(4, 64, 5, 5).to(memory_format=torch.channels_last), 64, 64 * 25),
        (torch.zeros(8, 300).t(), 300, 300),
    ],
)  # fmt: skip
def test_blocks_are_rows_in_memory_where_these_are_of_a_good_length(tensor, block, whole):
    assert block_length(leaf_of(tensor)) == block
    assert slice_length(leaf_of(tensor)) == whole


def test_float64_takes_the_place_of_floating_outputs_only():
    kinds = {"float32": "float64", "float16": "float64", "complex64": "complex128", "int64": "int64", "bool": "bool"}
    for kind, wide in kinds.items():
        leaf = leaf_of(torch.zeros(2, 3, dtype=getattr(torch, kind)).t())
        assert float64_leaf(leaf) == type(leaf)(leaf.shape, leaf.strides, wide)


# -- the quick way -----------------------------------------------------------------------------------------------------


def off_by_chance(case: Reference, error: float, seed: int) -> list[torch.Tensor]:
    """The fp32 reference of each slot, its elements off by that share of them, normally distributed."""
    generator = torch.Generator().manual_seed(seed)
    return [
        like(x, widened(x) * (1 + error * torch.randn(x.shape, generator=generator).double())).to(x.dtype)
        for x in case.fp32
    ]


@settings(max_examples=80, deadline=None)
@given(references(), st.sampled_from([0.0, 1e-6, 1e-5, 1e-4]), st.integers(0, 10**6))
def test_what_the_quick_test_settles_the_whole_one_lets_pass(case, error, seed):
    """Against the fp32 reference itself: the whole test with that in the place of float64."""
    found = off_by_chance(case, error, seed)
    e, f = (arena_of(*([x] for x in run)) for run in (case.fp32, found))
    own = Reference([widened(x) for x in case.fp32], case.fp32, [])
    for slot in range(len(found)):
        quick = Calibration(RULE, "cpu").settle(e, f, slot)
        if quick is None:
            return
        assert quick.passed
        assert quick.tolerance_used <= 1
    assert own.judge(found).passed


@pytest.mark.parametrize(
    ("expected", "found"),
    [(1.0, 1.001), (NAN, 1.0), (1.0, NAN), (INF, 3e38), (0.0, 1e-30), (INF, -INF), (1e38, 1.001e38)],
)
def test_what_is_wrong_the_quick_test_does_not_settle(expected, found):
    for place in (0, 299, 599, 600):
        e, f = torch.zeros(601), torch.zeros(601)
        e[place], f[place] = expected, found
        assert Calibration(RULE, "cpu").settle(arena_of([e.view(1, -1)]), arena_of([f.view(1, -1)]), 0) is None


@settings(max_examples=80, deadline=None)
@given(references(), st.sampled_from([0.0, 1e-5, 1e-3, 3e-3, 1e-2]), st.integers(0, 10**6))
def test_what_earlier_errors_settle_the_whole_test_lets_pass(case, error, seed):
    """The errors of slot 0, on the fp32 reference in the place of float64, as timed calls are judged."""
    found = off_by_chance(case, error, seed)
    e, f, v = (arena_of(*([x] for x in run)) for run in (case.fp32, found, case.variants[0]))
    calibration = Calibration(RULE, "cpu")
    calibration.begin(e, 0)
    calibration.add_variant(e, v, 0)
    calibration.finish(0, lasting=True)
    for slot in range(len(found)):
        quick = calibration.settle(e, f, slot)
        calibration.begin(e, slot)
        calibration.add_variant(e, v, slot)
        calibration.finish(slot, lasting=False)
        if quick is not None:
            assert quick.passed
            assert calibration.compare(e, f, slot, e, []).passed


@settings(max_examples=80, deadline=None)
@given(references(), st.sampled_from([0.0, 1e-5, 1e-3, 3e-3, 1e-2]), st.integers(0, 10**6))
def test_what_one_run_beside_the_fp32_reference_settles_the_whole_test_lets_pass(case, error, seed):
    found = off_by_chance(case, error, seed)
    e, f, v = (arena_of(*([x] for x in run)) for run in (case.fp32, found, case.variants[0]))
    calibration = Calibration(RULE, "cpu")
    for slot in range(len(found)):
        calibration.begin(e, slot)
        calibration.add_variant(e, v, slot)
        calibration.finish(slot, lasting=False)
        settled = calibration.settle_calibrated(e, f, slot)
        if settled is None:
            return
        assert settled.passed
    assert case.judge(found, lasting=False).passed


def test_of_a_tie_either_index_may_be_returned_and_no_other():
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, 5.0, 5.0]])
    expected = torch.tensor([0, 1])
    for found, tied in (([2, 3], [True, True]), ([1, 0], [False, False]), ([-1, 4], [False, False])):
        assert tied_indices([x], torch.tensor(found), expected).tolist() == tied
    assert tied_indices([x], torch.tensor([[2], [2]]), expected[:, None]).tolist() == [True, True]
    assert tied_indices([x], torch.tensor(2), torch.tensor(0)).tolist() == [True]
    assert tied_indices([x.int()], torch.tensor([2, 3]), expected).tolist() == [False, False]


def test_a_tie_is_one_in_every_input_that_could_be_searched():
    x, expected = torch.tensor([[3.0, 1.0, 3.0], [0.0, 5.0, 5.0]]), torch.tensor([0, 1])
    constant, mask = torch.zeros(2, 3), torch.tensor([[True, True, False], [False, True, True]])
    found = torch.tensor([2, 2])
    assert tied_indices([x, constant], found, expected).tolist() == [True, True]
    assert tied_indices([constant, x], torch.tensor([1, 0]), expected).tolist() == [False, False]
    assert tied_indices([x, mask], found, expected).tolist() == [False, True]
    assert tied_indices([mask], found, expected).tolist() == [False, False]
    assert tied_indices([x, torch.zeros(7)], found, expected).tolist() == [True, True]
    assert tied_indices([mask.float()], torch.tensor([1, 2]), torch.tensor([0, 1])).tolist() == [False, False]


def test_a_scaled_draws_error_holds_for_itself_alone():
    calibration, exact = Calibration(RULE, "cpu"), torch.randn(64, 40, dtype=torch.float64)
    expected, off = (arena_of([exact * (1 + share)], [exact]) for share in (0.0, 1e-3))
    for slot, scaled in ((0, True), (1, False)):
        calibration.begin(expected, slot)
        calibration.add_variant(expected, off, slot)
        calibration.finish(slot, lasting=not scaled, drawn=True)
        assert calibration.relative == ({} if scaled else {0: 0.0})


def test_a_tied_index_is_no_mismatch_and_a_wrong_one_is():
    x = torch.tensor([[3.0, 1.0, 3.0], [0.0, 5.0, 5.0]])
    expected = arena_of([torch.tensor([0, 1])])
    calibration = Calibration(RULE, "cpu")
    calibration.begin(expected, 0)
    calibration.finish(0, lasting=True)
    for found, mismatched in (([2, 2], 0), ([1, 2], 1)):
        comparison = calibration.compare(expected, arena_of([torch.tensor(found)]), 0, expected, [x])
        assert comparison.mismatched == mismatched


def test_a_number_repeated_over_its_block_is_judged_at_the_median_blocks_scale():
    draws = torch.Generator().manual_seed(1)
    exact = torch.randn(64, 1, generator=draws, dtype=torch.float64)
    exact[7] = 1e-6  # nearly cancelled
    noise = 1e-7 * torch.randn(64, 1, generator=draws, dtype=torch.float64)
    rows = [x.expand(64, 40).contiguous() for x in (exact, exact + noise, exact + 2 * noise.flip(0))]
    reference = Reference([rows[0]], [rows[1].float()], [])
    assert reference.judge([rows[2].float()]).passed
    wrong = rows[2].clone()
    wrong[7] += 1e-4
    assert reference.judge([wrong.float()]).mismatched == 40


def test_an_element_that_was_looked_at_closer_is_judged_by_its_own_error_and_alone():
    exact = torch.ones(4, 300, dtype=torch.float64)
    found, fp32 = exact.float(), exact.float()
    found[2, 7], found[3, 299] = 1.01, 1.01
    calibration = Calibration(RULE, "cpu")
    e, f, r = (arena_of([x]) for x in (exact, found, fp32))
    calibration.begin(e, 0)
    calibration.add_variant(e, r, 0)
    assert calibration.compare(e, f, 0, r, []).mismatched == 2
    places = calibration.outside[0]
    assert places.tolist() == [607, 1199]

    def outside(*errors: float) -> list[int]:
        closer = {0: Closer(places, torch.tensor(errors, dtype=torch.float64))}
        calibration.compare(e, f, 0, r, [], closer=closer)
        return calibration.outside[0].tolist()

    assert outside(1e-3, 1e-3) == []
    assert outside(1e-3, 0.0) == [1199]
    assert outside(5e-4, 1e-3) == [607]


def test_a_block_that_few_elements_spoil_names_those_and_one_that_is_off_everywhere_names_all():
    exact = torch.ones(8, 300, dtype=torch.float64)
    fp32 = exact.float()
    found = fp32.clone()
    found[1, 5] += 1e-2  # within what one element may be off by, not what the block may
    found[6] += 4e-4 * torch.where(torch.arange(300) % 2 == 0, 1.0, -1.0)
    calibration = Calibration(Rule(element_factor=16.0, element_floor=0.1, rms_factor=2.5, rms_floor=1e-4), "cpu")
    e, f, r = (arena_of([x]) for x in (exact, found, fp32))
    calibration.begin(e, 0)
    calibration.add_variant(e, r, 0)
    comparison = calibration.compare(e, f, 0, r, [])
    assert comparison.mismatched == 301
    assert calibration.outside[0].tolist() == [305, *range(1800, 2100)]


def test_a_rounding_of_the_outputs_usual_size_is_allowed_where_all_is_tiny_and_no_more():
    """As of exp(x) - 1, where the reference has expm1."""
    generator = torch.Generator().manual_seed(1)
    calibration = Calibration(RULE, "cpu")

    def judge(x: torch.Tensor, off: float, *, lasting: bool) -> Comparison:
        exact, found = torch.expm1(x), (torch.expm1(x) + off * torch.randn(x.shape, generator=generator)).float()
        e, f, r = (arena_of([y]) for y in (exact, found, exact.float()))
        calibration.begin(e, 0)
        calibration.add_variant(e, r, 0)
        calibration.finish(0, lasting=lasting)
        return calibration.compare(e, f, 0, r, [])

    usual = torch.randn(40, 300, generator=generator, dtype=torch.float64)
    assert judge(usual, 0.0, lasting=True).passed
    assert judge(1e-6 * usual, 2**-24, lasting=False).passed
    assert not judge(1e-6 * usual, 2**-20, lasting=False).passed


def test_where_a_running_sum_comes_near_zero_it_may_be_off_by_roundings_of_its_rows_size():
    exact = torch.ones(3, 5000, dtype=torch.float64)
    exact[0] *= 1000.0
    exact[0, 2048:2304] = 1e-3  # a block of 1000 near zero
    exact[2] *= 1e-3
    calibration = Calibration(RULE, "cpu")
    e = arena_of([exact])
    calibration.begin(e, 0)
    calibration.add_variant(e, arena_of([exact.float()]), 0)
    least = calibration.least_error(0, 0, torch.tensor([2050, 5000, 14_999]))
    assert least.tolist() == pytest.approx([16 * 2**-24 * size for size in (974.0, 1.0, 1e-3)], rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16], ids=str)
def test_a_wrong_element_of_a_small_type_is_found_where_there_is_no_float64(dtype):
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    e = arena_of([x])
    calibration = Calibration(RULE, "cpu")
    calibration.begin(e, 0)
    calibration.add_variant(e, e, 0)
    calibration.finish(0, lasting=True)
    for value, mismatched in ((None, 0), (30.0, 1), (NAN, 1)):
        found = x.float()
        if value is not None:
            found[1, 7] = value
        f = arena_of([found.to(dtype)])
        assert (calibration.settle(e, f, 0) is not None) == (mismatched == 0)
        assert calibration.compare(e, f, 0, e, []).mismatched == mismatched


# -- one pass ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 4), (1,), (5, 7), (3, 1000), (70, 33)])
@pytest.mark.parametrize("off", [0.0, 1e-6, 1e-3, math.inf])
def test_where_one_pass_is_taken_the_same_is_found(shape, off, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(shape, generator=generator, dtype=torch.float64)
    fp32 = exact.float()
    found = fp32.clone()
    found.view(-1)[-1:] += off

    def judged() -> tuple[Comparison, Comparison | None]:
        own = reference(exact, fp32 * (1 + 2**-23))
        calibration = Calibration(RULE, "cpu")
        return own.judge([found]), calibration.settle(arena_of([fp32]), arena_of([found]), 0)

    usual = judged()
    monkeypatch.setattr(module, "fit_one_pass", lambda e, f: f.dtype is torch.float32)
    one_pass = judged()
    for a, b in zip(usual, one_pass, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert (a.elements, a.mismatched) == (b.elements, b.mismatched)
            assert a.tolerance_used == pytest.approx(b.tolerance_used, rel=1e-3)
    assert (usual[0].mismatched > 0) == (off > 1e-6 and exact.numel() > 0)
