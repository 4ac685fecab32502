"""Whether an output is in a runner's memory, by a look at a few places of it."""

from __future__ import annotations

import os

import pytest
import torch

from kbenv.sandbox.judge.presence import look
from kbenv.sandbox.layout import Layout, leaf_of

OURS = [os.getpid()]


def slot_of(layout: Layout, tensors: list[torch.Tensor]) -> torch.Tensor:
    slot = torch.full((layout.slot_bytes,), 0xFF, dtype=torch.uint8)
    for leaf, offset, tensor in zip(layout.leaves, layout.offsets, tensors, strict=True):
        place = slot[offset : offset + leaf.nbytes].view(leaf.torch_dtype).as_strided(leaf.shape, leaf.strides)
        place.copy_(tensor)
    return slot


def said_of(tensors: list[torch.Tensor]) -> list:
    return [[tensor.data_ptr(), list(tensor.stride())] for tensor in tensors]


OUTPUTS = {
    "dense": lambda: [torch.randn(7, 5)],
    "transposed": lambda: [torch.randn(7, 5).mT, torch.randn(3)],
    "with gaps": lambda: [torch.randn(8, 64)[:, ::3]],
    "expanded": lambda: [torch.randn(8, 1).expand(8, 64)],
    "bytes, none and one": lambda: [torch.randn(9) > 0, torch.empty(0, 4), torch.tensor(3)],
    "complex": lambda: [torch.randn(5, 5, dtype=torch.complex64)],
}


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_is_found_where_it_lies(make):
    tensors = make()
    layout = Layout([leaf_of(tensor) for tensor in tensors])
    seen = look(OURS, said_of(tensors), layout)
    assert seen is not None
    assert seen.saw(slot_of(layout, tensors))
    assert not seen.saw(slot_of(layout, [~tensor if tensor.dtype == torch.bool else tensor + 1 for tensor in tensors]))


def test_what_is_written_later_was_not_there():
    tensor = torch.zeros(64, 64)
    layout = Layout([leaf_of(tensor)])
    seen = look(OURS, said_of([tensor]), layout)
    tensor.uniform_(1.0, 2.0)
    assert seen is not None
    assert not seen.saw(slot_of(layout, [tensor]))


@pytest.mark.parametrize(
    "said",
    [
        None, 7, [], {}, [None], [[0, [64, 1]]], [["0", [64, 1]]], [[1 << 80, [64, 1]]], [[-1, [64, 1]]],
        [[4096, [1 << 70, -(1 << 70)]]], [[True, [64, 1]]], [[4096, [64]]], [[4096, "64"]], [[4096, None]],
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_no_fault(said):
    tensor = torch.zeros(64, 64)
    layout = Layout([leaf_of(tensor)])
    seen = look(OURS, said, layout)
    assert seen is not None
    assert not seen.saw(slot_of(layout, [tensor]))


def test_nothing_is_known_where_no_memory_is_shown():
    tensor = torch.zeros(4)
    assert look([], said_of([tensor]), Layout([leaf_of(tensor)])) is None
