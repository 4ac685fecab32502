"""How nested arguments and outputs lie in a slot, and slots in an arena.

A tree of lists, tuples and dicts with tensors at its leaves is described by JSON and a list of `Leaf`; an arena is
one flat buffer of equal slots, so that a turn's inputs are filled, and its outputs taken, by a single copy.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

ALIGNMENT = 512
Tree = dict[str, Any]

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
        torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip


class UnsupportedError(TypeError):
    """A value that cannot travel in a slot."""


@dataclass(frozen=True)
class Leaf:
    """One tensor's shape, strides (in elements; dense) and dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        return _DTYPES[self.dtype]

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        return self.elements * self.torch_dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "strides": list(self.strides), "dtype": self.dtype}


def leaf_of(tensor: torch.Tensor) -> Leaf:
    """The leaf a tensor fits in: its own strides when it is dense, else contiguous ones."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise UnsupportedError(f"tensors of dtype {name} are not supported; supported: {', '.join(_DTYPES)}")
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"only dense tensors are supported; found layout {tensor.layout}")
    strides = tensor.stride() if _is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
    return Leaf(tuple(tensor.shape), tuple(strides), name)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def leaf_from_json(data: Any) -> Leaf:
    """A leaf from JSON; ValueError when it is not one (it may come from a runner)."""
    try:
        shape, strides, dtype = data["shape"], data["strides"], data["dtype"]
        numbers = [*shape, *strides]
    except (TypeError, KeyError) as e:
        raise ValueError(f"not a tensor's description: {data!r:.80}") from e
    if (
        not isinstance(dtype, str)
        or dtype not in _DTYPES
        or len(shape) != len(strides)
        or not all(type(n) is int and n >= 0 for n in numbers)
    ):
        raise ValueError(f"not a tensor's description: {data!r:.80}")
    return Leaf(tuple(shape), tuple(strides), dtype)


def flatten(value: Any, *, shared: bool = True) -> tuple[Tree, list[torch.Tensor]]:
    """Splits a nested value into its tree (JSON) and its tensors; the same tensor twice is one leaf where `shared`.

    Floats of a byte (fp8 and less) are codes there, whose bytes travel: like integers they are not scaled or moved.
    """
    tensors: list[torch.Tensor] = []
    seen: dict[int, int] = {}

    def walk(node: Any) -> Tree:
        if isinstance(node, torch.Tensor):
            kind, codes = {}, shared and node.dtype.is_floating_point and node.dtype.itemsize == 1
            if codes:
                kind = {"codes": str(node.dtype).removeprefix("torch.")}
            if not shared or id(node) not in seen:
                seen[id(node)] = len(tensors)
                tensors.append(node.view(torch.uint8) if codes else node)
            return {"tensor": seen[id(node)], **kind}
        if shared and (fields := _fields(node)) is not None:
            kind_of = type(node)
            return {"record": {name: walk(getattr(node, name)) for name in fields},
                    "type": [kind_of.__module__, kind_of.__qualname__]}  # fmt: skip
        if isinstance(node, list | tuple):
            return {"list" if isinstance(node, list) else "tuple": [walk(item) for item in node]}
        if isinstance(node, dict):
            if not all(isinstance(key, str) for key in node):
                raise UnsupportedError("only dicts with string keys are supported")
            return {"dict": {key: walk(item) for key, item in node.items()}}
        if isinstance(node, float) and not math.isfinite(node):
            return {"float": str(node)}
        if node is None or isinstance(node, bool | int | float | str):
            return {"constant": node}
        raise UnsupportedError(
            f"a value of type {type(node).__name__} cannot be passed; use tensors, numbers, lists, dicts"
        )

    return walk(value), tensors


def unflatten(tree: Tree, tensors: Sequence[torch.Tensor]) -> Any:
    """The nested value again, over other tensors."""
    if "codes" in tree:
        return tensors[tree["tensor"]].view(getattr(torch, tree["codes"]))
    if "record" in tree:
        return _record(tree["type"], {name: unflatten(item, tensors) for name, item in tree["record"].items()})
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in content.items()}
    if kind == "constant":
        return content
    if kind == "float":
        return float(content)
    items = [unflatten(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)


def _fields(node: Any) -> list[str] | None:
    """Of an instance of a dataclass or a named tuple; None for everything else."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return [field.name for field in dataclasses.fields(node)]
    return list(node._fields) if isinstance(node, tuple) and hasattr(node, "_fields") else None


def _record(type_name: Sequence[str], fields: dict[str, Any]) -> Any:
    """An instance of a class of the problem's, which the same source has defined here, without its constructor."""
    module, name = type_name
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    if issubclass(found, tuple):
        return found(**fields)
    made = object.__new__(found)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


def structure_of(tree: Tree) -> Any:
    """The structure without constants' values and the list/tuple distinction, which no caller can rely on."""
    ((kind, content),) = tree.items()
    if kind in ("list", "tuple"):
        return [structure_of(item) for item in content]
    if kind == "dict":
        return {key: structure_of(item) for key, item in content.items()}
    return "tensor" if kind == "tensor" else content


def flatten_output(value: Any, device: str) -> tuple[Tree, list[torch.Tensor]]:
    """`flatten` of an output: every value a leaf of its own, in the order of sorted keys, Python numbers 0-d tensors.

    Whether a tensor is returned twice or copied, and in which order a dict was filled, is no part of a result.
    """
    return flatten(_normalise(value, device), shared=False)


def _normalise(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype.itemsize == 1 and str(value.dtype)[6:] not in _DTYPES:
        return value.view(torch.uint8)  # codes that nothing computes with: equal or not
    if isinstance(value, bool | int | float):
        return torch.tensor(value, device=device)
    if isinstance(value, list | tuple):
        return [_normalise(item, device) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _normalise(value[key], device) for key in sorted(value)}
    return value


class Layout:
    """Offsets of leaves in a slot, each aligned to 512 bytes."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = tuple(leaves)
        self.offsets: list[int] = []
        end = 0
        for leaf in self.leaves:
            self.offsets.append(end)
            end += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
        self.slot_bytes = max(end, ALIGNMENT)


class Arena:
    """Equal slots over one flat uint8 buffer of `slots * layout.slot_bytes` bytes or more."""

    def __init__(self, flat: torch.Tensor, layout: Layout, slots: int) -> None:
        self.layout = layout
        self.slots = slots
        self.flat = flat[: slots * layout.slot_bytes]
        self._views: dict[int, list[torch.Tensor]] = {}

    def views(self, slot: int) -> list[torch.Tensor]:
        """The slot's tensors, one per leaf; the same objects on every call."""
        if slot not in self._views:
            start = slot * self.layout.slot_bytes
            self._views[slot] = [
                self.flat[start + offset : start + offset + leaf.nbytes]
                .view(leaf.torch_dtype)
                .as_strided(leaf.shape, leaf.strides)
                for leaf, offset in zip(self.layout.leaves, self.layout.offsets, strict=True)
            ]
        return self._views[slot]

    def flat_leaf(self, slot: int, index: int) -> torch.Tensor:
        """The leaf's elements in memory order, one-dimensional."""
        leaf, start = self.layout.leaves[index], slot * self.layout.slot_bytes + self.layout.offsets[index]
        return self.flat[start : start + leaf.nbytes].view(leaf.torch_dtype)

    def rows(self, index: int, first: int, count: int) -> torch.Tensor:
        """One leaf of `count` slots, elements in memory order: shape (count, elements)."""
        leaf, offset = self.layout.leaves[index], self.layout.offsets[index]
        table = self.flat.view(self.slots, self.layout.slot_bytes)
        return table[first : first + count, offset : offset + leaf.nbytes].view(leaf.torch_dtype)

    def stack(self, index: int, first: int, count: int) -> torch.Tensor:
        """One leaf of `count` slots, shape (count, *shape), with the leaf's own strides."""
        leaf, rows = self.layout.leaves[index], self.rows(index, first, count)
        strides = (self.layout.slot_bytes // rows.element_size(), *leaf.strides)
        return rows.as_strided((count, *leaf.shape), strides)

    def slot(self, slot: int) -> torch.Tensor:
        """The slot's bytes."""
        return self.flat[slot * self.layout.slot_bytes : (slot + 1) * self.layout.slot_bytes]


def map_tensors(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The nested value with every tensor converted; what holds them is new."""
    if isinstance(value, torch.Tensor):
        return convert(value)
    if (fields := _fields(value)) is not None and not isinstance(value, tuple):
        if not any(_holds_tensor(getattr(value, name)) for name in fields):
            return value  # a configuration, perhaps with more to it than its fields
        made = copy.copy(value)
        for name in fields:
            object.__setattr__(made, name, map_tensors(getattr(value, name), convert))
        return made
    if isinstance(value, list | tuple):
        items = [map_tensors(item, convert) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if fields is not None else tuple(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, convert) for key, item in value.items()}
    return value


def _holds_tensor(value: Any) -> bool:
    if (fields := _fields(value)) is not None:
        return any(_holds_tensor(getattr(value, name)) for name in fields)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, torch.Tensor) or any(map(_holds_tensor, items))
