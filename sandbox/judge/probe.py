"""Secret transformations of drawn inputs, made by the judge in its own masters.

A probe changes a whole draw in one way, so that a shortcut that holds for independent equal draws shows. A perturbation
changes a few elements of a timed draw in every way that the reference tolerates, so that no test of the data tells a
timed call from a check. Only floating tensors that look drawn from a continuum are touched: masks, labels and one-hot
vectors keep their values, symmetric matrices stay symmetric, triangular ones triangular. Shapes, integers and scalars
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..layout import Arena

_DISCRETE_VALUES = 32
_SAMPLE = 4096
_OUTLIERS = 1e-3
_SPARSE = 1e-3
_LEAST_IN_ROW = 8
_PART = 1 << 24


def _rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the first axis by a factor of its own, 1/8 to 8."""
    if x.dim() > 0:
        _scale_along(x, 0, generator)


def _columns(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the last axis by a factor of its own, 1/8 to 8."""
    if x.dim() > 1:
        _scale_along(x, x.dim() - 1, generator)


def _scale_along(x: torch.Tensor, axis: int, generator: torch.Generator) -> None:
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    factors = torch.exp2(torch.rand(shape, generator=generator, device=x.device) * 6 - 3)
    x.mul_(factors.to(x.dtype))


def _outliers(x: torch.Tensor, generator: torch.Generator) -> None:
    """One element in a thousand 20 to 100 times as large, of either sign."""
    chosen = torch.rand(x.shape, generator=generator, device=x.device) < _OUTLIERS
    size = torch.rand(x.shape, generator=generator, device=x.device) * 160 - 80
    size = torch.where(size >= 0, size + 20, size - 20).to(x.dtype)
    x.copy_(torch.where(chosen, x * size, x))


def _near_one(x: torch.Tensor, generator: torch.Generator) -> None:
    """Values within a twentieth of 1: products of many neither vanish nor explode."""
    x.copy_((torch.rand(x.shape, generator=generator, device=x.device) * 0.1 + 0.95).to(x.dtype))


def _near_one_signed(x: torch.Tensor, generator: torch.Generator) -> None:
    """Values within a twentieth of 1 or of -1."""
    _near_one(x, generator)
    _signs(x, generator)


def _shifted(x: torch.Tensor, generator: torch.Generator) -> None:
    """The mean moved by two to four standard deviations, up or down."""
    size, sign = torch.rand(2, generator=generator, device=x.device).tolist()
    deviation = float(x.float().std()) if x.numel() > 1 else 1.0
    x.add_((2 + 2 * size) * deviation * (1 if sign < 0.5 else -1))


def _signs(x: torch.Tensor, generator: torch.Generator) -> None:
    """Every element's sign drawn anew."""
    negative = torch.rand(x.shape, generator=generator, device=x.device) < 0.5
    x.copy_(torch.where(negative, -x, x))


def _large(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**17: beyond the range of half precision."""
    x.mul_(2.0**17)


def _small(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**-20: below the normal numbers of half precision."""
    x.mul_(2.0**-20)


PROBES: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "rows": _rows, "columns": _columns, "outliers": _outliers, "signs": _signs, "shifted": _shifted,
    "near-one": _near_one, "near-one-signed": _near_one_signed, "large": _large, "small": _small,
}  # fmt: skip


_FILLING = frozenset({"shifted", "near-one", "near-one-signed"})
"""Probes that leave no zero where one was."""


def apply_probe(masters: Arena, slot: int, name: str, seed: int) -> bool:
    """Transforms one slot in place; False when it holds nothing that may be."""
    touched = False
    for index, (x, form) in enumerate(_drawn(masters, slot)):
        if form.sparse and name in _FILLING:
            continue
        PROBES[name](x, torch.Generator(x.device).manual_seed(seed + index))
        form.restore(x)
        touched = True
    return touched


def perturb(masters: Arena, slots: range, tolerated: Sequence[str], seed: int) -> None:
    """Changes a few elements and a slice or two of each slot, in the ways that `tolerated` names."""
    for slot in slots:
        for index, (x, form) in enumerate(_drawn(masters, slot)):
            generator = torch.Generator(x.device).manual_seed(seed + 1009 * slot + index)
            if x.numel() < 2:
                continue
            # From a few to one in a thousand: a test of a sample cannot be tuned to what it would see.
            most = max(1.0, _SPARSE * x.numel() / 2)
            count = round(2 * most ** float(torch.rand(1, generator=generator, device=x.device)))
            for name in tolerated:
                if name in ("rows", "columns") and x.dim() > (name == "columns"):
                    axis = 0 if name == "rows" else x.dim() - 1
                    at = int(torch.randint(x.shape[axis], (1,), generator=generator, device=x.device))
                    x.select(axis, at).mul_(_factor(generator, x.device))
                elif name in ("signs", "outliers"):
                    chosen = [torch.randint(size, (count,), generator=generator, device=x.device) for size in x.shape]
                    values = x[tuple(chosen)]
                    x[tuple(chosen)] = -values if name == "signs" else values * _factor(generator, x.device)
            form.restore(x)


def jitter(masters: Arena, slots: range, seed: int) -> None:
    """Moves every floating input by at most one unit in its last place: what the problem makes of a rounding."""
    for slot in slots:
        for index, leaf in enumerate(masters.layout.leaves):
            if leaf.torch_dtype.is_floating_point:
                x = masters.flat_leaf(slot, index)
                generator = torch.Generator(x.device).manual_seed(seed + 1009 * slot + index)
                step = torch.finfo(leaf.torch_dtype).eps
                for start in range(0, len(x), _PART):
                    part = x[start : start + _PART]
                    moved = torch.rand(part.shape, generator=generator, device=x.device) * 2 - 1
                    part.mul_((1 + moved.double() * step) if leaf.torch_dtype is torch.float64 else 1 + moved * step)


def _factor(generator: torch.Generator, device: torch.device) -> float:
    return float(torch.exp2(torch.rand(1, generator=generator, device=device) * 4 - 1))


@dataclass(frozen=True)
class _Form:
    """What a tensor promises beyond its shape, which honest code may rely on.

    Attributes:
        symmetric: equal to its transpose in the last two axes.
        sparse: more than one element in a hundred is zero, as in a triangular matrix.
    """

    symmetric: bool
    sparse: bool

    def restore(self, x: torch.Tensor) -> None:
        """Makes a changed tensor keep the promise again."""
        if self.symmetric:
            x.copy_(torch.triu(x) + torch.triu(x, 1).mT)


def _drawn(masters: Arena, slot: int) -> list[tuple[torch.Tensor, _Form]]:
    """The slot's floating tensors that look drawn from a continuum, element by element.

    Not those of few values (masks, labels), sorted along the last axis, or of rows that sum to 1.
    """
    found = []
    for index, x in enumerate(masters.views(slot)):
        if not x.is_floating_point() or x.numel() == 0:
            continue
        flat = masters.flat_leaf(slot, index)
        sample = flat[:: max(1, len(flat) // _SAMPLE)][: 2 * _SAMPLE].double()
        if len(sample) > _DISCRETE_VALUES >= len(torch.unique(sample)):
            continue
        if x.dim() > 0 and x.shape[-1] >= _LEAST_IN_ROW:
            rows = x[(0,) * (x.dim() - 2)][:4].double() if x.dim() > 1 else x[None].double()
            ordered = (rows.diff(dim=-1) >= 0).all()
            shares = ((rows.sum(dim=-1) - 1).abs() < 1e-3).all() & (rows >= 0).all()
            if bool(ordered | shares):
                continue
        found.append((x, _Form(_is_symmetric(x), float((sample == 0).double().mean()) > 0.01)))
    return found


def _is_symmetric(x: torch.Tensor) -> bool:
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < _LEAST_IN_ROW:
        return False
    matrix = x[(0,) * (x.dim() - 2)]
    some = matrix[:: max(1, len(matrix) // 64)]
    return bool((some == matrix.mT[:: max(1, len(matrix) // 64)]).all())
