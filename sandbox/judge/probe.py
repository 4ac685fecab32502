"""Secret transformations of drawn inputs, made by the judge in its own masters.

A probe changes a whole draw in one way, so that a shortcut that holds for independent equal draws shows. A perturbation
changes a few elements of a timed draw in every way that the reference tolerates, so that no test of the data tells a
timed call from a check. Only floating tensors that look drawn from a continuum are touched: masks, labels and one-hot
vectors keep their values. Shapes, integers and scalars stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..layout import Arena

_DISCRETE_VALUES = 32
_SAMPLE = 4096
_OUTLIERS = 1e-3
_SPARSE = 1e-3
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


def apply_probe(masters: Arena, slot: int, name: str, seed: int) -> bool:
    """Transforms one slot in place; False when it holds nothing that may be."""
    touched = False
    for index, x in enumerate(_continuous(masters, slot)):
        PROBES[name](x, torch.Generator(x.device).manual_seed(seed + index))
        touched = True
    return touched


def perturb(masters: Arena, slots: range, tolerated: Sequence[str], seed: int) -> None:
    """Changes a few elements and a slice or two of each slot, in the ways that `tolerated` names."""
    for slot in slots:
        for index, x in enumerate(_continuous(masters, slot)):
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


def _continuous(masters: Arena, slot: int) -> list[torch.Tensor]:
    """The slot's floating tensors that hold more than a few values."""
    found = []
    for index, x in enumerate(masters.views(slot)):
        if not x.is_floating_point() or x.numel() == 0:
            continue
        flat = masters.flat_leaf(slot, index)
        sample = flat[:: max(1, len(flat) // _SAMPLE)][: 2 * _SAMPLE].double()
        if len(sample) <= _DISCRETE_VALUES or len(torch.unique(sample)) > _DISCRETE_VALUES:
            found.append(x)
    return found
