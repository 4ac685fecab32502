"""Nested values lie in slots and come back as they were; a description from outside is checked."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbenv.sandbox.layout import (
    ALIGNMENT,
    Arena,
    Layout,
    Leaf,
    UnsupportedError,
    flatten,
    flatten_output,
    leaf_from_json,
    leaf_of,
    map_tensors,
    unflatten,
)

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def make_arena(leaves: list[Leaf], slots: int = 1) -> Arena:
    layout = Layout(leaves)
    return Arena(torch.zeros(slots * layout.slot_bytes, dtype=torch.uint8), layout, slots)


constants = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
tensors = st.builds(lambda n: torch.arange(n), st.integers(0, 4))
trees = st.recursive(
    constants | tensors,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return a is b
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(trees)
def test_flatten_and_unflatten_undo_each_other(value):
    tree, leaves = flatten(value)
    assert same(unflatten(json.loads(json.dumps(tree)), leaves), value)


def test_constants_that_json_lacks_survive_as_well():
    tree, _ = flatten([-math.inf, math.inf, math.nan])
    low, high, nan = unflatten(json.loads(json.dumps(tree, allow_nan=False)), [])
    assert (low, high) == (-math.inf, math.inf)
    assert math.isnan(nan)


def test_the_same_tensor_twice_is_one_leaf():
    x = torch.zeros(3)
    tree, leaves = flatten([x, {"again": x}])
    assert len(leaves) == 1
    first, second = unflatten(tree, [torch.ones(3)])
    assert first is second["again"]


@pytest.mark.parametrize("value", [object(), {1: torch.zeros(1)}, {torch.zeros(1)}, b"bytes", 1j])
def test_what_cannot_travel_is_said(value):
    with pytest.raises(UnsupportedError):
        flatten([value])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_supported_dtype_survives_a_slot(dtype):
    values = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    leaf = leaf_of(values)
    arena = make_arena([leaf, leaf], slots=2)
    arena.views(1)[1].copy_(values)
    assert arena.views(1)[1].dtype is dtype
    assert torch.equal(arena.views(1)[1], values)
    assert not arena.views(0)[0].view(torch.uint8).any()
    assert not arena.views(1)[0].view(torch.uint8).any()
    assert leaf.nbytes == values.nbytes


def test_a_dense_tensor_keeps_its_strides_and_any_other_gets_contiguous_ones():
    x = torch.zeros(2, 3, 4, 5)
    assert leaf_of(x.permute(3, 1, 0, 2)).strides == x.permute(3, 1, 0, 2).stride()
    channels_last = x.to(memory_format=torch.channels_last)
    assert leaf_of(channels_last).strides == channels_last.stride()
    assert leaf_of(x[:, :, ::2]).strides == torch.empty(2, 3, 2, 5).stride()
    assert leaf_of(torch.zeros(1, 4).expand(3, 4)).strides == (4, 1)
    assert leaf_of(torch.tensor(1.0)) == Leaf((), (), "float32")


@pytest.mark.parametrize("tensor", [torch.zeros(2, 2).to_sparse(), torch.zeros(2, dtype=torch.uint32)])
def test_tensors_of_other_layouts_and_dtypes_are_unsupported(tensor):
    with pytest.raises(UnsupportedError):
        leaf_of(tensor)


shapes = st.lists(st.integers(0, 5), max_size=4)


@given(st.data())
def test_any_dense_tensor_comes_back_from_its_slot(data):
    shape = data.draw(shapes)
    x = torch.randn(shape)
    x = x.permute(data.draw(st.permutations(range(len(shape)))))
    leaf = leaf_from_json(json.loads(json.dumps(leaf_of(x).to_json())))
    assert leaf == leaf_of(x)
    slots, slot = 3, data.draw(st.integers(0, 2))
    arena = make_arena([Leaf((3,), (1,), "uint8"), leaf], slots)
    arena.views(slot)[1].copy_(x)
    assert torch.equal(arena.views(slot)[1], x)
    assert arena.views(slot)[1].stride() == leaf.strides or x.numel() == 0
    assert sorted(arena.flat_leaf(slot, 1).tolist()) == sorted(x.flatten().tolist())
    assert torch.equal(arena.rows(1, slot, 1).reshape(-1), arena.flat_leaf(slot, 1))


def test_leaves_are_aligned_and_slots_do_not_overlap():
    layout = Layout([Leaf((3,), (1,), "uint8"), Leaf((129,), (1,), "float32"), Leaf((0,), (1,), "float32")])
    assert layout.offsets == [0, ALIGNMENT, ALIGNMENT + 1024]
    assert layout.slot_bytes == ALIGNMENT + 1024
    assert Layout([]).slot_bytes == ALIGNMENT
    arena = make_arena(list(layout.leaves), slots=2)
    arena.slot(0).fill_(255)
    assert not arena.slot(1).any()
    assert arena.views(0)[1].isnan().all()


def test_a_slots_views_are_the_same_objects_on_every_call():
    arena = make_arena([Leaf((2,), (1,), "float32")])
    assert arena.views(0)[0] is arena.views(0)[0]


def test_rows_hold_one_leaf_of_several_slots():
    arena = make_arena([Leaf((2,), (1,), "float32"), Leaf((2, 2), (1, 2), "int64")], slots=4)
    for slot in range(4):
        arena.views(slot)[1].copy_(torch.tensor([[0, 1], [2, 3]]) + 10 * slot)
    assert arena.rows(1, 1, 2).tolist() == [[10, 12, 11, 13], [20, 22, 21, 23]]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "tensor",
        {},
        {"shape": [1], "strides": [1]},
        {"shape": 1, "strides": [1], "dtype": "float32"},
        {"shape": [1], "strides": [], "dtype": "float32"},
        {"shape": [-1], "strides": [1], "dtype": "float32"},
        {"shape": [True], "strides": [1], "dtype": "float32"},
        {"shape": [1.0], "strides": [1], "dtype": "float32"},
        {"shape": ["1"], "strides": [1], "dtype": "float32"},
        {"shape": "1", "strides": "1", "dtype": "float32"},
        {"shape": [1], "strides": [1], "dtype": "float31"},
        {"shape": [1], "strides": [1], "dtype": ["float32"]},
        {"shape": [1], "strides": [1], "dtype": None},
    ],
)
def test_a_description_from_outside_is_checked(data):
    with pytest.raises(ValueError, match="not a tensor's description"):
        leaf_from_json(data)


def test_numbers_in_an_output_become_tensors_and_the_rest_stays():
    x = torch.zeros(2)
    tree, (one, two, three, four) = flatten_output([1, 2.5, (True, x), {"n": "text"}], "cpu")
    assert (one.dtype, one.item(), two.item(), three.dtype) == (torch.int64, 1, 2.5, torch.bool)
    assert four is x
    assert tree["list"][3] == {"dict": {"n": {"constant": "text"}}}


def test_an_output_returned_twice_is_two_leaves_and_keys_are_taken_in_order():
    x, y = torch.zeros(2), torch.ones(2)
    assert flatten_output([x, x], "cpu") == ({"list": [{"tensor": 0}, {"tensor": 1}]}, [x, x])
    one, leaves = flatten_output({"b": x, "a": y}, "cpu")
    other, same_leaves = flatten_output({"a": y, "b": x}, "cpu")
    assert one == other
    assert [id(leaf) for leaf in leaves] == [id(leaf) for leaf in same_leaves] == [id(y), id(x)]


def test_map_tensors_reaches_every_tensor_and_keeps_the_nest():
    value = [torch.zeros(1), (torch.zeros(1), {"a": torch.zeros(1)}), 3, None]
    mapped = map_tensors(value, lambda tensor: tensor + 1)
    assert mapped[0] == 1
    assert type(mapped[1]) is tuple
    assert mapped[1][1]["a"] == 1
    assert mapped[2:] == [3, None]


@dataclasses.dataclass(frozen=True)
class Record:
    x: torch.Tensor
    size: int


class Pair(NamedTuple):
    first: torch.Tensor
    second: float


def test_records_and_named_tuples_come_back_as_what_they_were() -> None:
    value = [Record(torch.ones(2), 7), Pair(torch.zeros(3), 0.5)]
    tree, leaves = flatten(value)
    found = unflatten(json.loads(json.dumps(tree)), [leaf + 1.0 for leaf in leaves])
    assert isinstance(found[0], Record)
    assert isinstance(found[1], Pair)
    assert (found[0].size, found[1].second) == (7, 0.5)
    assert torch.equal(found[0].x, torch.full((2,), 2.0))
    moved = map_tensors(value, lambda tensor: tensor.double())
    assert (moved[0].x.dtype, moved[1].first.dtype, value[0].x.dtype) == (torch.float64, torch.float64, torch.float32)
    assert type(moved[1]) is Pair
    plain = Record([1, 2], 3)  # type: ignore[arg-type]
    assert map_tensors(plain, lambda tensor: tensor) is plain


def test_floats_of_a_byte_travel_as_codes_and_arrive_as_floats() -> None:
    codes = torch.randn(4, 3).to(torch.float8_e4m3fn)
    tree, leaves = flatten([codes, codes])
    assert [leaf.dtype for leaf in leaves] == [torch.uint8]
    found = unflatten(json.loads(json.dumps(tree)), leaves)
    assert all(torch.equal(item.float(), codes.float()) for item in found)
    assert found[0].dtype == torch.float8_e4m3fn
    assert flatten_output(codes, "cpu")[1][0].dtype == torch.float8_e4m3fn  # an output is compared as numbers
    rare = torch.zeros(3, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    assert flatten_output(rare, "cpu")[1][0].dtype == torch.uint8
