"""Every element is compared, as torch.allclose would: nothing infinite, integer or at the end of a chunk slips by."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kbenv.sandbox.judge import compare as module
from kbenv.sandbox.judge.compare import (
    Comparison,
    compare,
    compare_matched,
    count_nonfinite,
    relative_difference,
    same_bytes,
)
from kbenv.sandbox.layout import Arena, Layout, leaf_of

INF, NAN = math.inf, math.nan


def arena_of(*slots: list[torch.Tensor]) -> Arena:
    """An arena with one slot for each list of outputs."""
    layout = Layout([leaf_of(tensor) for tensor in slots[0]])
    arena = Arena(torch.zeros(len(slots) * layout.slot_bytes, dtype=torch.uint8), layout, len(slots))
    for slot, outputs in enumerate(slots):
        for view, tensor in zip(arena.views(slot), outputs, strict=True):
            view.copy_(tensor)
    return arena


def compare_tensors(
    expected: torch.Tensor, found: torch.Tensor, absolute: float = 1e-3, relative: float = 1e-3
) -> Comparison:
    return compare(arena_of([expected]), arena_of([found]), range(1), [absolute], relative, "cpu")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 8)
    return 8


floats = arrays("float32", 6, elements=st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, 1.001, INF, -INF, NAN]))


@settings(max_examples=300)
@given(floats, floats, st.booleans(), st.sampled_from([0.0, 1e-4, 1e-2]), st.sampled_from([0.0, 1e-4, 1e-2]))
def test_the_outcome_is_that_of_allclose(expected, found, near, absolute, relative):
    e = torch.from_numpy(expected)
    f = e * (1 + torch.from_numpy(found).nan_to_num(0, 0, 0).clamp(-0.02, 0.02)) if near else torch.from_numpy(found)
    close = torch.isclose(f.double(), e.double(), rtol=relative, atol=absolute, equal_nan=True)
    comparison = compare_tensors(e, f, absolute, relative)
    assert comparison.passed == bool(close.all())
    assert comparison.mismatched == int((~close).sum())
    assert comparison.elements == 6


def changed(value: float, count: int) -> torch.Tensor:
    found = torch.ones(20)
    found[:count] = value
    return found


@pytest.mark.parametrize(
    ("expected", "found", "cap", "passes"),
    [
        (torch.ones(20), changed(1.5, 2), None, True), (torch.ones(20), changed(1.5, 3), None, False),
        (torch.ones(20), changed(1.5, 2), 0.5, True), (torch.ones(20), changed(1.6, 1), 0.5, False),
        (torch.ones(20), changed(1.0005, 20), 1e-4, False), (torch.ones(20), changed(NAN, 1), None, False),
        (changed(INF, 1), changed(-INF, 1), None, False), (changed(INF, 1), changed(INF, 1), None, True),
        (torch.eye(20)[0], torch.zeros(20), None, False), (torch.ones(20).int(), changed(2.0, 1).int(), None, False),
    ],
)  # fmt: skip
def test_a_share_of_each_output_may_be_outside(
    expected: torch.Tensor, found: torch.Tensor, cap: float | None, passes: bool, small_chunks: int
) -> None:
    tolerance = {"absolute": 1e-3, "relative": 0.0, "share": 0.9, "cap": cap}
    comparison = compare_matched(arena_of([expected]), arena_of([found]), 0, tolerance, "cpu")
    assert comparison.passed is passes
    assert comparison.elements == 20
    assert (comparison.tolerated > 0) is (passes and not torch.equal(expected, found))
    other = torch.ones(1000)  # the share is each output's own
    two = (arena_of([expected, other]), arena_of([found, other]))
    assert compare_matched(*two, 0, tolerance, "cpu").passed is passes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("expected", "found", "passes"),
    [
        (NAN, NAN, True), (INF, INF, True), (-INF, -INF, True), (0.0, -0.0, True), (1.0, 1.0, True),
        (INF, -INF, False), (INF, NAN, False), (NAN, INF, False), (NAN, 0.0, False), (0.0, NAN, False),
        (INF, 60000.0, False), (60000.0, INF, False), (-60000.0, -INF, False), (0.0, INF, False), (0.0, 0.01, False),
    ],
)  # fmt: skip
def test_what_is_not_finite_must_stand_where_the_reference_has_it(dtype, expected, found, passes):
    e, f = torch.tensor([1.0, expected], dtype=dtype), torch.tensor([1.0, found], dtype=dtype)
    comparison = compare_tensors(e, f)
    assert comparison.passed is passes
    assert compare_tensors(e, f, absolute=INF).passed is (passes or (math.isfinite(expected) and math.isfinite(found)))
    json.dumps(comparison.evidence(), allow_nan=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool], ids=str)
def test_integers_and_booleans_must_be_equal(dtype):
    e = torch.tensor([0, 1, 1], dtype=dtype)
    f = torch.tensor([0, 1, 0], dtype=dtype)
    assert compare_tensors(e, e.clone(), absolute=10.0).passed
    comparison = compare_tensors(e, f, absolute=10.0, relative=10.0)
    assert comparison.mismatched == 1
    assert comparison.max_abs_error == 1.0


def test_integers_that_float64_cannot_tell_apart_are_told_apart():
    e = torch.tensor([2**53], dtype=torch.int64)
    assert not compare_tensors(e, e + 1).passed


def test_complex_numbers_are_compared_by_their_parts_and_counted_once():
    e = torch.tensor([1 + 1j, 2 + 2j, 3 + 3j])
    f = torch.tensor([1 + 1j, 2.5 + 2.5j, 3 + 3.5j])
    comparison = compare_tensors(e, f)
    assert (comparison.elements, comparison.mismatched) == (3, 2)
    assert comparison.first == {"output": 0, "index": [1], "expected": 2.0, "found": 2.5}
    assert compare_tensors(e, e.clone()).elements == 3


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats_are_compared(dtype):
    e = torch.tensor([1.0, 2.0]).to(dtype)
    assert compare_tensors(e, e.clone()).passed
    assert not compare_tensors(e, torch.tensor([1.0, 2.5]).to(dtype)).passed


def test_errors_are_those_of_the_worst_element():
    comparison = compare_tensors(torch.tensor([100.0, 0.5, 0.0]), torch.tensor([101.0, 0.75, 1e-5]))
    assert comparison.max_abs_error == 1.0
    assert comparison.max_rel_error == 0.5
    assert comparison.mismatched == 2


def test_errors_too_large_for_a_number_stay_finite():
    largest = torch.finfo(torch.float64).max
    e = torch.tensor([largest, 5e-324], dtype=torch.float64)
    f = torch.tensor([-largest, largest], dtype=torch.float64)
    comparison = compare_tensors(e, f)
    assert comparison.mismatched == 2
    assert comparison.evidence()["max_abs_error"] == largest
    json.dumps(comparison.evidence(), allow_nan=False)


@pytest.mark.parametrize("at", [0, 7, 8, 15, 16, 18])
def test_one_wrong_element_anywhere_is_found(small_chunks, at):
    e = torch.zeros(2 * small_chunks + 3)
    f = e.clone()
    f[at] = 1.0
    comparison = compare_tensors(e, f)
    assert comparison.mismatched == 1
    assert comparison.elements == 19
    assert comparison.first == {"output": 0, "index": [at], "expected": 0.0, "found": 1.0}


@pytest.mark.parametrize("elements", [1, 3, 8, 9])
def test_the_first_mismatch_of_several_slots_is_in_the_first_that_differs(small_chunks, elements):
    right = [torch.zeros(elements) for _ in range(7)]
    wrong = [tensor.clone() for tensor in right]
    wrong[5][elements - 1] = 5.0
    wrong[6][0] = 6.0
    e, f = arena_of(*[[tensor] for tensor in right]), arena_of(*[[tensor] for tensor in wrong])
    comparison = compare(e, f, range(7), [0.0], 0.0, "cpu")
    assert (comparison.elements, comparison.mismatched) == (7 * elements, 2)
    assert comparison.first is not None
    assert (comparison.first["index"], comparison.first["found"]) == ([elements - 1], 5.0)
    assert compare(e, f, range(1, 5), [0.0], 0.0, "cpu").passed


def test_the_padding_between_outputs_is_not_compared():
    outputs = [torch.zeros(3), torch.zeros(2, dtype=torch.int64)]
    e, f = arena_of(outputs), arena_of(outputs)
    f.flat[12:512] = 255
    assert compare(e, f, range(1), [0.0, 0.0], 0.0, "cpu").passed


@given(st.data())
def test_the_first_mismatch_is_named_by_its_index_whatever_the_strides(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    e = torch.zeros(shape).permute(order)
    index = tuple(data.draw(st.integers(0, size - 1)) for size in e.shape)
    f = e.clone()
    f[index] = 1.0
    comparison = compare_tensors(e, f)
    assert comparison.first is not None
    assert tuple(comparison.first["index"]) == index


def test_the_first_mismatch_names_the_output():
    e = arena_of([torch.zeros(2), torch.tensor(1.0)])
    f = arena_of([torch.zeros(2), torch.tensor(NAN)])
    comparison = compare(e, f, range(1), [1e-3, 1e-3], 1e-3, "cpu")
    assert comparison.evidence()["first_mismatch"] == {"output": 1, "index": [], "expected": 1.0, "found": "nan"}


def test_each_output_has_its_own_tolerance():
    e = arena_of([torch.zeros(2), torch.zeros(2)])
    f = arena_of([torch.full((2,), 0.5), torch.full((2,), 0.25)])
    assert compare(e, f, range(1), [0.5, 0.25], 0.0, "cpu").passed
    comparison = compare(e, f, range(1), [0.5, 0.125], 0.0, "cpu")
    assert comparison.mismatched == 2
    assert comparison.first is not None
    assert comparison.first["output"] == 1
    assert comparison.output_errors == {0: 0.5, 1: 0.25}


def test_comparisons_add_up():
    right, wrong = arena_of([torch.zeros(4)]), arena_of([torch.full((4,), 2.0)])
    total = compare(right, right, range(1), [0.0], 0.0, "cpu")
    assert total.passed
    total.merge(compare(right, wrong, range(1), [0.0], 0.0, "cpu"))
    total.merge(compare(right, right, range(1), [0.0], 0.0, "cpu"))
    assert (total.elements, total.mismatched, total.max_abs_error) == (12, 4, 2.0)
    assert total.first is not None
    assert not total.passed
    assert "tolerance_widened_to" not in total.evidence()
    total.merge(Comparison(widened_to=0.5))
    total.merge(Comparison(widened_to=0.25))
    assert total.evidence()["tolerance_widened_to"] == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool], ids=str)
def test_equal_bytes_count_as_many_elements_as_equal_values(small_chunks, dtype):
    tensors = [torch.ones(3, 5).to(dtype), torch.ones(()).to(dtype)]
    e, f = arena_of(tensors, tensors), arena_of(tensors, tensors)
    assert compare(e, f, range(2), [0.0, 0.0], 0.0, "cpu").elements == 32
    f.flat[-1] = 255  # padding: no longer the same bytes
    comparison = compare(e, f, range(2), [0.0, 0.0], 0.0, "cpu")
    assert (comparison.elements, comparison.mismatched) == (32, 0)


def test_the_relative_difference_is_that_of_root_mean_squares(small_chunks):
    x = torch.linspace(1, 2, 20)
    e, f = arena_of([x, torch.tensor([INF, 1.0])]), arena_of([1.5 * x, torch.tensor([1.0, 1.5])])
    assert relative_difference(e, f, 0, "cpu") == pytest.approx(0.5)
    assert relative_difference(e, e, 0, "cpu") == 0.0
    zeros, ones = arena_of([torch.zeros(3)]), arena_of([torch.ones(3)])
    assert relative_difference(zeros, ones, 0, "cpu") == 0.0


def test_nothing_compared_is_not_passed():
    assert not Comparison().passed
    assert not compare_tensors(torch.zeros(0, 3), torch.zeros(0, 3)).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_elements_that_are_not_finite_are_counted(small_chunks, dtype):
    values = torch.tensor([0.0] * 8 + [NAN, INF, -INF, 1.0]).to(dtype)
    arena = arena_of([values, torch.zeros(2, dtype=torch.int64)])
    assert count_nonfinite(arena, 0, "cpu") == 3


def test_a_large_float64_is_finite():
    assert count_nonfinite(arena_of([torch.tensor([1e300], dtype=torch.float64)]), 0, "cpu") == 0


def test_same_bytes_sees_every_bit():
    a = torch.zeros(1024, dtype=torch.uint8)
    b = a.clone()
    assert same_bytes(a, b)
    b[1023] = 1
    assert not same_bytes(a, b)


def test_nan_of_other_bytes_is_the_same_value():
    e = torch.tensor([NAN])
    f = (e.view(torch.int32) + 1).view(torch.float32)
    assert f.isnan().all()
    assert not same_bytes(arena_of([e]).flat, arena_of([f]).flat)
    assert compare_tensors(e, f).passed
