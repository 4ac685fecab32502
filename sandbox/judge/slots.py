"""Slots: the memory that arms and judge exchange inputs and outputs through, and the judge's own copies.

Two `Slots` exist: the trusted one (reference and null runner) and the submission's. The submission's process never maps
the trusted one, in which inputs are drawn and reference outputs appear.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..buffers import Buffer, create_buffer, write_value
from ..layout import Arena, Layout, Tree
from .arm import Arm
from .plan import Plan

_ATTACH_S = 60.0


@dataclass(frozen=True)
class Signature:
    """What goes into a call and what comes out, as the reference showed it."""

    input_tree: Tree
    output_tree: Tree
    inputs: Layout
    outputs: Layout


class Slots:
    """Exported input and output slots, and (CUDA) the flag that opens the gate."""

    inputs: Arena
    outputs: Arena

    def __init__(self, device: str, signature: Signature, plan: Plan, *, inputs_writable: bool) -> None:
        self._device = device
        self._signature = signature
        self._plan = plan
        self._inputs_writable = inputs_writable
        self._buffers: dict[str, Buffer] = {}
        self._gate = 0
        self._attached: list[Arm] = []
        if not plan.exclusive:
            self._create()

    def _create(self) -> None:
        sizes = {
            "inputs": self._signature.inputs.slot_bytes * self._plan.slots,
            "outputs": self._signature.outputs.slot_bytes * self._plan.slots,
            "flag": 4,
        }
        try:
            for name, size in sizes.items():
                self._buffers[name] = create_buffer(self._device, size)
        except MemoryError:
            self.close()
            raise
        self.inputs = Arena(self._buffers["inputs"].flat, self._signature.inputs, self._plan.slots)
        self.outputs = Arena(self._buffers["outputs"].flat, self._signature.outputs, self._plan.slots)
        if self._device == "cuda":
            self._buffers["flag"].flat.zero_()
            self._gate = 0

    def close(self) -> None:
        """Unmaps everything; what a live runner maps it keeps until it dies."""
        for name in ("inputs", "outputs"):
            if hasattr(self, name):
                delattr(self, name)
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers.clear()

    @contextlib.contextmanager
    def lent_to(self, arm: Arm) -> Iterator[None]:
        """While this lasts the arm has the slots mapped. An exclusive plan takes them back afterwards."""
        if self._plan.exclusive:
            self._create()
            self._attach(arm)
            try:
                yield
                arm.ask("detach", timeout_s=_ATTACH_S)
            finally:
                self.close()
        else:
            if arm not in self._attached:
                self._attach(arm)
                self._attached.append(arm)
            yield

    def forget(self, arm: Arm) -> None:
        """The arm is gone."""
        if arm in self._attached:
            self._attached.remove(arm)

    def _attach(self, arm: Arm) -> None:
        names = ("inputs", "outputs", "flag") if self._device == "cuda" else ("inputs", "outputs")
        descriptors = [
            self._buffers[name].open_descriptor(writable=name != "inputs" or self._inputs_writable) for name in names
        ]
        signature = self._signature
        content: dict[str, Any] = {
            "inputs": [leaf.to_json() for leaf in signature.inputs.leaves],
            "outputs": [leaf.to_json() for leaf in signature.outputs.leaves],
            "input_tree": signature.input_tree,
            "output_tree": signature.output_tree,
        }
        arm.ask(
            "attach", timeout_s=_ATTACH_S, descriptors=descriptors,
            slots=self._plan.slots, inputs_writable=self._inputs_writable, **content,
        )  # fmt: skip

    def poison(self, first: int, count: int) -> None:
        """Fills output slots with 0xFF (NaN in every floating type): what a runner does not write shows."""
        size = self.outputs.layout.slot_bytes
        self.outputs.flat[first * size : (first + count) * size].fill_(0xFF)

    def next_gate(self) -> int:
        self._gate += 1
        return self._gate

    def open_gate(self, value: int) -> None:
        write_value(self._buffers["flag"].flat[:4], value)


class Store:
    """The judge's own copies: masters of the inputs, expected outputs, snapshots. Never exported."""

    def __init__(self, device: str, signature: Signature, plan: Plan) -> None:
        on_host = plan.exclusive and device == "cuda"

        def arena(layout: Layout) -> Arena:
            size = layout.slot_bytes * plan.slots
            flat = torch.empty(size, dtype=torch.uint8, device="cpu" if on_host else device, pin_memory=on_host)
            return Arena(flat, layout, plan.slots)

        self.masters = arena(signature.inputs)
        self.expected = arena(signature.outputs)
        self.snapshot = arena(signature.outputs)
        self._kept: Arena | None = None

    def close(self) -> None:
        """Gives the memory back, whoever still holds the store."""
        del self.masters, self.expected, self.snapshot
        self._kept = None

    def keep_snapshot(self) -> Arena:
        """The snapshot, put where no further turn overwrites it; until the next one is kept."""
        kept = self._kept or Arena(torch.empty_like(self.snapshot.flat), self.snapshot.layout, self.snapshot.slots)
        self._kept, self.snapshot = self.snapshot, kept
        return self._kept

    def expect_snapshot(self) -> None:
        """What the snapshot holds is expected from now on; of slots that are not in it, nothing is."""
        self.expected, self.snapshot = self.snapshot, self.expected


def copy_slots(source: Arena, target: Arena, first: int, count: int) -> None:
    """One copy of `count` slots, asynchronous on CUDA."""
    size = source.layout.slot_bytes
    part = slice(first * size, (first + count) * size)
    target.flat[part].copy_(source.flat[part], non_blocking=True)


def scale_slots(masters: Arena, first: int, count: int, factor: float) -> None:
    """Floating leaves of `count` slots times `factor`."""
    for slot in range(first, first + count):
        for index, leaf in enumerate(masters.layout.leaves):
            if leaf.torch_dtype.is_floating_point:
                masters.flat_leaf(slot, index).mul_(factor)
