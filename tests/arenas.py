"""Arenas over given tensors, for tests of what the judge computes in them."""

from __future__ import annotations

import torch

from kbenv.sandbox.layout import Arena, Layout, leaf_of


def arena_of(*slots: list[torch.Tensor]) -> Arena:
    """An arena with one slot for each list of tensors, which must agree in shapes, strides and dtypes."""
    layout = Layout([leaf_of(tensor) for tensor in slots[0]])
    arena = Arena(torch.zeros(len(slots) * layout.slot_bytes, dtype=torch.uint8), layout, len(slots))
    for slot, tensors in enumerate(slots):
        for view, tensor in zip(arena.views(slot), tensors, strict=True):
            view.copy_(tensor)
    return arena
