"""Secret transformations of drawn inputs, made by the judge in its own masters.

A probe changes a whole draw in one way, so that a shortcut that holds for independent equal draws shows. A perturbation
changes a few elements of a timed draw in every way that the reference tolerates, so that no test of the data tells a
timed call from a check. Of floating tensors only those that look drawn from a continuum are touched, and constant ones:
masks that vary, labels and one-hot vectors keep their values, symmetric matrices stay symmetric, triangular ones
triangular. Shapes, integers and scalars stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..layout import Arena
from .seeds import derive

_DISCRETE_VALUES = 32
_SAMPLE = 4096
_OUTLIERS, _LEAST_OUTLIERS, _MOST_OUTLIERS = 1e-3, 16, 1 / 64
"""A share; of small tensors so many, within a share."""
_SPARSE = 1e-3
_LEAST_IN_ROW = 8
_PART = 1 << 24
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the first axis by a factor of its own, 1/8 to 8."""
    _scale_along(x, 0, generator)


def _columns(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the last axis by a factor of its own, 1/8 to 8."""
    _scale_along(x, x.dim() - 1, generator)


def _scale_along(x: torch.Tensor, axis: int, generator: torch.Generator) -> None:
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    factors = torch.exp2(torch.rand(shape, generator=generator, device=x.device) * 6 - 3)
    x.mul_(factors.to(x.dtype))


def _row_means(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the first axis moved by a mean of its own, of four standard deviations."""
    _shift_along(x, 0, generator)


def _column_means(x: torch.Tensor, generator: torch.Generator) -> None:
    """Each slice along the last axis moved by a mean of its own, of four standard deviations."""
    _shift_along(x, x.dim() - 1, generator)


def _shift_along(x: torch.Tensor, axis: int, generator: torch.Generator) -> None:
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    means = torch.randn(shape, generator=generator, device=x.device) * 4 * _deviation(x)
    x.add_(means.to(x.dtype))


def _zero_rows(x: torch.Tensor, generator: torch.Generator) -> None:
    """One slice in eight along the first axis, and along the last but one, is zero."""
    for axis in sorted({0, max(0, x.dim() - 2)}):
        shape = [1] * x.dim()
        shape[axis] = x.shape[axis]
        kept = torch.rand(shape, generator=generator, device=x.device) >= 0.125
        x.mul_(kept.to(x.dtype))


def _outliers(x: torch.Tensor, generator: torch.Generator) -> None:
    """One element in a thousand, in small tensors a few more, 200 to 2000 times as large, of either sign."""
    share = max(_OUTLIERS, min(_MOST_OUTLIERS, _LEAST_OUTLIERS / x.numel()))
    step = round(1 / share)
    first = torch.arange(0, x.numel(), step, device=x.device)
    at = first + torch.randint(step, first.shape, generator=generator, device=x.device)  # one of each stretch, or none
    size = torch.rand(first.shape, generator=generator, device=x.device) * 3600 - 1800
    size = torch.where(size >= 0, size + 200, size - 200).to(x.dtype)[at < x.numel()]
    at = at[at < x.numel()]
    x[at] = x[at] * size


def _tails(x: torch.Tensor, _: torch.Generator) -> None:
    """The last slice along each axis times 2**10: what a tile, a loop or a vector that ends too soon leaves out."""
    tails = [x.select(axis, -1) for axis in range(x.dim())]
    for tail, larger in zip(tails, [tail * 2.0**10 for tail in tails], strict=True):
        tail.copy_(larger)


def _near_one(x: torch.Tensor, generator: torch.Generator) -> None:
    """Values within a twentieth of 1: products of many neither vanish nor explode."""
    x.uniform_(0.95, 1.05, generator=generator)


def _near_one_signed(x: torch.Tensor, generator: torch.Generator) -> None:
    """Values within a twentieth of 1 or of -1."""
    _near_one(x, generator)
    _signs(x, generator)


def _dip(x: torch.Tensor, generator: torch.Generator) -> None:
    """Near 1, save that along the last axis a stretch of sixteenths is made good by as many sixteens, later: a running
    product all but vanishes for a while."""
    _dip_along(x, x.dim() - 1, generator)


def _inner_dip(x: torch.Tensor, generator: torch.Generator) -> None:
    """The same along the last axis but one."""
    _dip_along(x, x.dim() - 2, generator)


def _dip_along(x: torch.Tensor, axis: int, generator: torch.Generator) -> None:
    _near_one(x, generator)
    steps, first, gap = torch.rand(3, generator=generator, device=x.device).tolist()
    size = x.shape[axis]
    steps = min(round(5 + 18 * steps), size // 8)
    start = round(first * size / 4)
    end = start + steps + round((0.3 + 0.7 * gap) * size / 2)
    x.narrow(axis, start, steps).div_(16)
    x.narrow(axis, end, steps).mul_(16)


def _shifted(x: torch.Tensor, generator: torch.Generator) -> None:
    """The mean moved by two to four standard deviations, up or down."""
    size, sign = torch.rand(2, generator=generator, device=x.device).tolist()
    x.add_((2 + 2 * size) * _deviation(x) * (1 if sign < 0.5 else -1))


def _far_above(x: torch.Tensor, _: torch.Generator) -> None:
    """The mean moved up by 200 standard deviations, and by 150 at least."""
    x.add_(_far(x))


def _far_below(x: torch.Tensor, _: torch.Generator) -> None:
    """The mean moved down by as much: nothing is above any usual start of a maximum, and no exponential is left."""
    x.sub_(_far(x))


def _far(x: torch.Tensor) -> float:
    return max(150.0, 200 * _deviation(x))


def _deviation(x: torch.Tensor) -> float:
    return float(x.float().std()) if x.numel() > 1 else 1.0


def _ties(x: torch.Tensor, _: torch.Generator) -> None:
    """Values rounded to multiples of a half."""
    x.mul_(2).round_().div_(2)


def _signs(x: torch.Tensor, generator: torch.Generator) -> None:
    """Every element's sign drawn anew."""
    x.mul_(torch.randint(2, x.shape, generator=generator, device=x.device, dtype=torch.int8).mul_(2).sub_(1))


def _gaps(x: torch.Tensor, generator: torch.Generator) -> None:
    """Half of all elements zero, as after a ReLU: what holds a zero for an end, or as good as none, is found out."""
    x.masked_fill_(torch.randint(2, x.shape, generator=generator, device=x.device, dtype=torch.bool), 0)


def _wide(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**10: beyond the range of an exponential, where the largest value is not taken out first."""
    x.mul_(2.0**10)


def _narrow(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**-10: their variance is below the usual epsilons."""
    x.mul_(2.0**-10)


def _large(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**17: beyond the range of half precision, of which itself 2**8 leaves room for sums."""
    x.mul_(2.0**8 if x.dtype is torch.float16 else 2.0**17)


def _small(x: torch.Tensor, _: torch.Generator) -> None:
    """All values times 2**-20: below the normal numbers of half precision."""
    x.mul_(2.0**-20)


def _apart(x: torch.Tensor, _: torch.Generator) -> None:
    """Of several inputs all values times 2**-20, of every other one times 2**20 (`_far_up`): each is beyond the range
    of half precision, and their product where it was, not below what it may be off by."""
    x.mul_(2.0**-8 if x.dtype is torch.float16 else 2.0**-20)


def _far_up(x: torch.Tensor, _: torch.Generator) -> None:
    x.mul_(2.0**8 if x.dtype is torch.float16 else 2.0**20)


def _constants(x: torch.Tensor, generator: torch.Generator) -> None:
    """What was drawn constant (a state of zeros, a mask of ones) varies: about 0 within a half, about else within half
    of it; of booleans one in five is the other."""
    if x.dtype is torch.bool:
        x.copy_(torch.where(torch.rand(x.shape, generator=generator, device=x.device) < 0.2, ~x, x))
    else:
        x.copy_(_varied(x, generator))


def _varied(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Other values in the place of constant ones; of booleans the other one."""
    if x.dtype is torch.bool:
        return ~x
    chosen = torch.rand(x.shape, generator=generator, device=x.device)
    return torch.where(x == 0, chosen - 0.5, x * (0.5 + chosen)).to(x.dtype)


def _ends(x: torch.Tensor, generator: torch.Generator) -> None:
    """Of integers half are the smallest or the largest that were drawn; of booleans nine in ten are alike."""
    chosen = torch.rand(x.shape, generator=generator, device=x.device)
    if x.dtype is torch.bool:
        value = bool(torch.rand(1, generator=generator, device=x.device) < 0.5)
        x.copy_(torch.where(chosen < 0.8, value, x))
    else:
        x.copy_(torch.where(chosen < 0.25, x.amin(), torch.where(chosen > 0.75, x.amax(), x)))


PROBES: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "rows": _rows, "columns": _columns, "row-means": _row_means, "column-means": _column_means, "outliers": _outliers,
    "tails": _tails, "signs": _signs, "gaps": _gaps, "shifted": _shifted,
    "far-above": _far_above, "far-below": _far_below, "near-one": _near_one,
    "near-one-signed": _near_one_signed, "wide": _wide, "large": _large, "narrow": _narrow, "small": _small,
    "apart": _apart, "zero-rows": _zero_rows, "ties": _ties, "dip": _dip, "inner-dip": _inner_dip, "ends": _ends,
    "constants": _constants,
}  # fmt: skip
_ELEMENTWISE = frozenset(
    {"outliers", "signs", "gaps", "near-one", "near-one-signed", "wide", "large", "narrow", "small", "apart", "ties"}
)
_LEAST_AXES = {
    "rows": 1,
    "tails": 1,
    "zero-rows": 1,
    "dip": 1,
    "inner-dip": 2,
    "columns": 2,
    "row-means": 2,
    "column-means": 2,
}
_FILLING = frozenset(
    {
        "row-means",
        "column-means",
        "shifted",
        "far-above",
        "far-below",
        "near-one",
        "near-one-signed",
        "dip",
        "inner-dip",
    }
)
"""Probes that leave no zero where one was."""


def apply_probe(masters: Arena, slot: int, name: str, seed: int) -> bool:
    """Transforms one slot in place; False when it holds nothing that may be."""
    touched = False
    if name in _OTHERS:
        for index, x in _OTHERS[name](masters, slot):
            PROBES[name](x, torch.Generator(x.device).manual_seed(derive(seed, name, index)))
            touched = True
        return touched
    drawn = list(_drawn(masters, slot))
    if name == "apart" and len(drawn) < 2:
        return False
    for index, (_, x, form) in enumerate(drawn):
        change = _far_up if name == "apart" and index % 2 else PROBES[name]
        if form.sparse and name in _FILLING:
            continue
        if x.dim() < _LEAST_AXES.get(name, 0):
            continue
        generator = torch.Generator(x.device).manual_seed(derive(seed, name, index))
        if name in _ELEMENTWISE:  # an input may be of gigabytes, and draws take as much again
            flat = x.as_strided((x.numel(),), (1,))
            for start in range(0, len(flat), _PART):
                change(flat[start : start + _PART], generator)
        else:
            change(x, generator)
        form.restore(x)
        touched = True
    return touched


def perturb(masters: Arena, slots: range, tolerated: Sequence[str], seed: int) -> None:
    """Changes a few elements and a slice or two of each slot, in the ways that `tolerated` names.

    All slots at once, and nothing is asked of the device meanwhile: a turn of a short kernel has two hundred slots.
    Which tensors are changed the first slot tells, since all are drawn by the same code.
    """
    for index, drawn, form in _drawn(masters, slots[0]):
        if drawn.numel() < 2:
            continue
        x, key = masters.stack(index, slots[0], len(slots)), derive(seed, "perturb", slots[0], index)
        numbers, places = torch.Generator().manual_seed(key), torch.Generator(x.device).manual_seed(key)
        which = _few_of_each(x, numbers)
        for name in tolerated:
            factors = torch.exp2(torch.rand(len(x), generator=numbers) * 4 - 1)
            if name in ("rows", "columns") and drawn.dim() > (name == "columns"):
                axis = 0 if name == "rows" else drawn.dim() - 1
                at = torch.randint(drawn.shape[axis], (len(x),), generator=numbers)
                for one, place, factor in zip(x, at.tolist(), factors.tolist(), strict=True):
                    one.select(axis, place).mul_(factor)
            elif name in ("signs", "outliers"):
                chosen = _anywhere(x, which, places)
                values = x[which, *chosen]
                x[which, *chosen] = -values if name == "signs" else values * factors.to(values)[which]
        if form.symmetric:
            for one in x:
                form.restore(one)
    for index, _ in _constant(masters, slots[0]) if "constants" in tolerated else ():
        x, key = masters.stack(index, slots[0], len(slots)), derive(seed, "constants", slots[0], index)
        numbers, places = torch.Generator().manual_seed(key), torch.Generator(x.device).manual_seed(key)
        which = _few_of_each(x, numbers)
        chosen = _anywhere(x, which, places)
        x[which, *chosen] = _varied(x[which, *chosen], places)


def _few_of_each(x: torch.Tensor, numbers: torch.Generator) -> torch.Tensor:
    """Which slot of a stack each element to be changed is in: from a few to one in a thousand of its elements, so that
    a test of a sample cannot be tuned to what it would see."""
    most = max(1.0, _SPARSE * x[0].numel() / 2)
    counts = (2 * most ** torch.rand(len(x), generator=numbers)).round().long()
    return torch.arange(len(x)).repeat_interleave(counts).to(x.device)


def _anywhere(x: torch.Tensor, which: torch.Tensor, places: torch.Generator) -> list[torch.Tensor]:
    """Random indices along every axis of a stack but the first, one for each of `which`."""
    return [torch.randint(n, which.shape, generator=places, device=x.device) for n in x.shape[1:]]


def jitter(masters: Arena, slots: range, seed: int) -> None:
    """Moves half of all floating inputs by one unit in the last place: what the problem makes of a rounding.

    It flips the lowest bit, so that the same again restores them, without a copy.
    """
    for slot in slots:
        for index, leaf in enumerate(masters.layout.leaves):
            if leaf.torch_dtype.is_floating_point:
                x = masters.flat_leaf(slot, index)
                generator = torch.Generator(x.device).manual_seed(derive(seed, "jitter", slot, index))
                integer = _INTEGERS[x.element_size()]
                all_but_last = torch.iinfo(integer).max - 1
                for start in range(0, len(x), _PART):
                    part = x[start : start + _PART]
                    bits = part.view(integer)
                    flip = torch.randint(2, part.shape, generator=generator, device=x.device, dtype=integer)
                    bits ^= flip * (((bits & all_but_last) != 0) & torch.isfinite(part))  # zero stays, and infinity


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


def _drawn(masters: Arena, slot: int) -> list[tuple[int, torch.Tensor, _Form]]:
    """The slot's floating tensors that look drawn from a continuum, element by element, and which leaves they are.

    Not those of few values or whole numbers (masks, labels), of one element (settings), sorted along the last axis, or
    of rows that sum to 1.
    """
    found = []
    for index, x in enumerate(masters.views(slot)):
        if not x.is_floating_point() or x.numel() == 0:
            continue
        sample = _sample(masters.flat_leaf(slot, index)).double()
        few = len(torch.unique(sample)) <= min(_DISCRETE_VALUES, len(sample) // 2)
        if few or len(sample) == 1 or bool((sample == sample.round()).all()):
            continue
        if x.dim() > 0 and x.shape[-1] >= _LEAST_IN_ROW:
            rows = x[(0,) * (x.dim() - 2)][:4].double() if x.dim() > 1 else x[None].double()
            ordered = (rows.diff(dim=-1) >= 0).all()
            shares = ((rows.sum(dim=-1) - 1).abs() < 1e-3).all() & (rows >= 0).all()
            if bool(ordered | shares):
                continue
        found.append((index, x, _Form(_is_symmetric(x), float((sample == 0).double().mean()) > 0.01)))
    return found


def _sample(flat: torch.Tensor) -> torch.Tensor:
    """Elements from anywhere, always the same ones: every n-th would be one column, or the diagonal, of a matrix."""
    if len(flat) <= _SAMPLE:
        return flat
    places = torch.randint(len(flat), (_SAMPLE,), generator=torch.Generator().manual_seed(0))
    return flat[places.to(flat.device)]


def _independent_integers(masters: Arena, slot: int) -> list[tuple[int, torch.Tensor]]:
    """The slot's integer and boolean tensors that look drawn one by one: some values repeat, in no order. And which
    leaves they are."""
    found = []
    for index, x in enumerate(masters.views(slot)):
        if x.is_floating_point() or x.is_complex() or x.numel() < _LEAST_IN_ROW:
            continue
        rows = (x[(0,) * (x.dim() - 2)][:4] if x.dim() > 1 else x[None]).long()
        sample = masters.flat_leaf(slot, index)[:_SAMPLE].long()
        if len(torch.unique(sample)) < len(sample) and not bool((rows.diff(dim=-1) >= 0).all()):
            found.append((index, x))
    return found


def _constant(masters: Arena, slot: int) -> list[tuple[int, torch.Tensor]]:
    """The slot's floating and boolean tensors of one value, and which leaves they are."""
    found = []
    for index, x in enumerate(masters.views(slot)):
        if x.numel() < 2 or not (x.is_floating_point() or x.dtype is torch.bool):
            continue
        flat = masters.flat_leaf(slot, index)
        if bool((_sample(flat) == flat[0]).all()) and bool(torch.isfinite(flat[0])) and bool((flat == flat[0]).all()):
            found.append((index, x))
    return found


_OTHERS: dict[str, Callable[[Arena, int], list[tuple[int, torch.Tensor]]]] = {
    "ends": _independent_integers, "constants": _constant,
}  # fmt: skip
"""Probes of what was not drawn from a continuum, and which tensors they take."""


def _is_symmetric(x: torch.Tensor) -> bool:
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < _LEAST_IN_ROW:
        return False
    matrix = x[(0,) * (x.dim() - 2)]
    some = matrix[:: max(1, len(matrix) // 64)]
    return bool((some == matrix.mT[:: max(1, len(matrix) // 64)]).all())
