"""What the reference's forward costs at least: operations, and bytes that it reads and writes. One call, untimed.

Seen by a dispatch mode, operator by operator, on the trusted reference. Counted low where in doubt: a table that is
only gathered from counts as nothing, a slice or an expanded view as what is touched of them, an output that is a view
of an input as nothing, and operations are those of matrix products, convolutions and attention alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..layout import flatten
from ..wire import Message
from .dispatch import DispatchMode, makes_view

_GATHERS = frozenset(
    {"embedding", "_embedding_bag", "_embedding_bag_forward_only", "index", "index_select", "gather", "take"}
)
"""Operators that read a few rows of their first argument."""


def count_cost(forward: Callable[[], Any], given: Sequence[torch.Tensor]) -> Message:
    """Runs `forward` once. `given`: the inputs, then parameters and buffers.

    Returns:
        reads: bytes of each of `given` that operators read, at least once each;
        written: bytes of the outputs that are no view of what was given;
        flops: two for each multiplication and addition.
    """
    with _Counter(given) as counter:
        outputs = forward()
    _, tensors = flatten(outputs)
    written = sum(_distinct_bytes(tensor) for tensor in tensors if counter.owner_of(tensor) is None)
    return {"reads": counter.reads, "written": written, "flops": counter.flops}


class _Counter(DispatchMode):
    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch.utils.flop_counter import flop_registry  # no other runner needs it

        self.flops = 0
        self.reads = [0] * len(given)
        self._formulas = flop_registry
        self._spans = [(tensor.data_ptr(), tensor.data_ptr() + _spanned_bytes(tensor)) for tensor in given]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        packet = function._overloadpacket
        if not makes_view(function):
            gathers = packet.__name__ in _GATHERS
            for tensor in tree_leaves((args[1:] if gathers else args, kwargs)):
                if isinstance(tensor, torch.Tensor) and (owner := self.owner_of(tensor)) is not None:
                    self.reads[owner] = max(self.reads[owner], _distinct_bytes(tensor))
        if packet in self._formulas:
            self.flops += self._formulas[packet](*args, **kwargs, out_val=result)
        return result

    def owner_of(self, tensor: torch.Tensor) -> int | None:
        """Which of the given tensors holds this one's memory."""
        address = tensor.data_ptr()
        return next((index for index, (low, high) in enumerate(self._spans) if low <= address < high), None)


def _distinct_bytes(tensor: torch.Tensor) -> int:
    """Of the elements in memory: an expanded dimension repeats them, and windows overlap."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 else min(size, 1)
    return min(count * tensor.element_size(), _spanned_bytes(tensor))


def _spanned_bytes(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
