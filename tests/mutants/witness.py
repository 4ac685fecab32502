"""Looks for a witness of each mutant: an input of the problem's domain, and parameters, on which it is wrong.

An output is wrong where it is further from the float64 reference than is allowed: a thousandth of the element and of
the output's root mean square, and never less than four times what PyTorch itself is off, in float32 and with products
in TF32. The honest seed must be within half of that on the same input. So no witness hangs on a protocol's tolerance,
nor on its inputs: the families below and the coordinate search are this file's own.

A mutant runs in a process of its own, which may crash or hang. It is called as a judge calls: one instance, fixed
buffers, a base draw first; parameters never change under an instance.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kbenv.problems import load_problem
from tests.mutants.corpus import (
    DROPPED,
    MANIFEST,
    Mutant,
    Seed,
    as_record,
    from_record,
    load_manifest,
    load_seeds,
    stand_alone,
)  # fmt: skip
from tests.mutants.generate import candidates

RELATIVE = 1e-3
HONEST = 0.5
"""The seed's own error may at most be this share of what is allowed, or the draw proves nothing."""
MUTANT_S = 30.0
REPEATS = 200
"""Calls on one witness in which an intermittent fault must show."""
BIG = 1 << 19
"""Elements of a problem's inputs from which fewer draws are made."""

Tensors = list[torch.Tensor]
Numbers = dict[str, int]
State = dict[str, torch.Tensor]


# -- problems --------------------------------------------------------------------------------------


class Reference:
    """A problem's reference, executed here: trusted code."""

    def __init__(self, problem: str) -> None:
        self.module = SimpleNamespace(**execute(load_problem(problem).source_for("cpu"), "problem"))
        self.name = Path(problem).stem
        torch.manual_seed(42)
        self.model = self.module.Model(*self.module.get_init_inputs())
        self.own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        torch.manual_seed(0)
        sample = self.module.get_inputs()
        kinds = getattr(self.module, "DOMAIN", ["real"] * len(sample))
        self.kinds = [
            "boolean" if tensor.dtype == torch.bool else kind for tensor, kind in zip(sample, kinds, strict=True)
        ]
        self.elements = sum(tensor.numel() for tensor in sample)

    def base(self, seed: int) -> Tensors:
        torch.manual_seed(seed)
        return [tensor.contiguous() for tensor in self.module.get_inputs()]

    def expect(self, inputs: Tensors, state: State) -> list[Expected] | None:
        """None where the reference itself is not finite, or PyTorch is a hundredth off."""
        with torch.no_grad():
            self.model.load_state_dict(state)
            exact = outputs_of(self.model.double()(*map(doubled, inputs)))
            self.model.float()
            plain = outputs_of(self.model(*inputs))
            with Tf32Products():
                coarse = outputs_of(self.model(*inputs))
        expected = []
        for e, p, c in zip(exact, plain, coarse, strict=True):
            if not e.is_floating_point():
                if not torch.equal(e, p):
                    return None
                expected.append(Expected(e, 0.0, 0.0))
                continue
            if not (torch.isfinite(e).all() and torch.isfinite(p).all()):
                return None
            off = max(float((p.double() - e).abs().max()), float((c.double() - e).abs().max()))
            rms = float(e.square().mean().sqrt())
            if not math.isfinite(off) or off > 1e-2 * rms:
                return None
            expected.append(Expected(e, rms, off))
        return expected


@dataclass(frozen=True)
class Expected:
    """One output in float64, its root mean square, and PyTorch's own largest error."""

    value: torch.Tensor
    rms: float
    off: float


def score(found: Any, expected: list[Expected]) -> tuple[float, float]:
    """The largest error over what is allowed, and the share of elements beyond it. Raises WrongKindError."""
    found = outputs_of(found)
    if [tuple(f.shape) for f in found] != [tuple(e.value.shape) for e in expected]:
        raise WrongKindError("shape")
    worst, wrong, total = 0.0, 0, 0
    for f, e in zip(found, expected, strict=True):
        total += f.numel()
        if not e.value.is_floating_point():
            if f.dtype != e.value.dtype:
                raise WrongKindError("dtype")
            differ = int((f != e.value).sum())
            worst, wrong = max(worst, 1e9 if differ else 0.0), wrong + differ
            continue
        if f.dtype != torch.float32:
            raise WrongKindError("dtype")
        allowed = (RELATIVE * (e.value.abs() + e.rms)).clamp(min=max(4 * e.off, 1e-30))
        ratio = ((f.double() - e.value).abs() / allowed).nan_to_num(nan=1e9, posinf=1e9).clamp(max=1e9)
        worst, wrong = max(worst, float(ratio.max())), wrong + int((ratio > 1).sum())
    return worst, wrong / max(total, 1)


class WrongKindError(Exception):
    """An output's number, shape or type is not the reference's."""


def outputs_of(value: Any) -> Tensors:
    return list(value) if isinstance(value, tuple | list) else [value]


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


class Tf32Products(TorchDispatchMode):
    """Rounds the operands of matrix products and convolutions to TF32's ten bits."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in ("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "convolution") or "attention" in name:
            first = 1 if name in ("addmm", "baddbmm") else 0
            count = 3 if "attention" in name else 2
            args = [tf32(arg) if first <= i < first + count else arg for i, arg in enumerate(args)]
        return function(*args, **(kwargs or {}))


def tf32(tensor: torch.Tensor) -> torch.Tensor:
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def execute(source: str, name: str) -> dict[str, Any]:
    """Runs `source`; Triton needs it in a file."""
    namespace: dict[str, Any] = {"__name__": f"mutants_{name}"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "triton" in source:
            path = Path(tempfile.mkdtemp()) / f"{name}.py"
            path.write_text(source)
            spec = importlib.util.spec_from_file_location(f"mutants_{name}", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return vars(module)
        exec(compile(source, f"<{name}>", "exec"), namespace)
    return namespace


# -- draws -----------------------------------------------------------------------------------------

Family = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


def normal(loc: float = 0.0, scale: float = 1.0) -> Family:
    return lambda shape, g: loc + scale * torch.randn(shape, generator=g)


def heavy(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    t = torch.randn(shape, generator=g) / torch.rand(shape, generator=g).clamp(min=1e-6) ** 0.7
    return t.clamp(-1e4, 1e4)


def quantised(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return torch.round(2 * torch.randn(shape, generator=g)) / 2


def per_axis(axis: int) -> Family:
    """Slices along one axis differ in scale by up to 100."""

    def draw(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
        if not shape:
            return torch.randn(shape, generator=g)
        sizes = [1] * len(shape)
        sizes[axis % len(shape)] = shape[axis % len(shape)]
        return torch.randn(shape, generator=g) * 10 ** (2 * torch.rand(sizes, generator=g) - 1)

    return draw


def offset_axis(axis: int) -> Family:
    """Slices along one axis differ in mean."""

    def draw(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
        sizes = [1] * len(shape)
        if shape:
            sizes[axis % len(shape)] = shape[axis % len(shape)]
        return torch.randn(shape, generator=g) + 4 * torch.randn(sizes, generator=g)

    return draw


def sparse(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(shape, generator=g) < 0.03, 20 * torch.randn(shape, generator=g), 0.0)


def mostly_equal(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return torch.randn((), generator=g) + 1e-3 * torch.randn(shape, generator=g)


def ramp(sign: float) -> Family:
    return lambda shape, g: (
        sign * torch.linspace(-2, 2, math.prod(shape)).reshape(shape) + 0.01 * torch.randn(shape, generator=g)
    )


def near_one(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return (1 + 0.02 * torch.randn(shape, generator=g)) * torch.where(torch.rand(shape, generator=g) < 0.5, -1.0, 1.0)


def mixture(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    loc = 10 ** (3 * torch.rand((), generator=g) - 1) * torch.sign(torch.randn((), generator=g))
    scale = 10 ** (4 * torch.rand((), generator=g) - 2)
    return loc + scale * torch.randn(shape, generator=g)


def bimodal(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(shape, generator=g) < 0.5, -3.0, 3.0) + 0.3 * torch.randn(shape, generator=g)


ORDINARY: dict[str, Family] = {
    "normal": normal(), "positive": lambda shape, g: torch.rand(shape, generator=g),
    "negative": lambda shape, g: -torch.rand(shape, generator=g), "shift 3": normal(3.0), "shift -3": normal(-3.0, 0.5),
    "scale 4": normal(0, 4.0), "scale 0.1": normal(0, 0.1), "quantised": quantised, "bimodal": bimodal,
    "rows": per_axis(0), "columns": per_axis(-1), "row means": offset_axis(0), "column means": offset_axis(-1),
    "middle means": offset_axis(1), "sparse": sparse, "near one": near_one,
    "ramp up": ramp(1.0), "ramp down": ramp(-1.0),
}  # fmt: skip
EXTREME: dict[str, Family] = {
    "heavy": heavy, "mostly equal": mostly_equal, "scale 0.01": normal(0, 0.01), "scale 20": normal(0, 20.0),
    "shift 10": normal(10.0), "shift -10": normal(-10.0), "shift 100": normal(100.0), "shift -100": normal(-100.0),
    "scale 200": normal(0, 200.0), "scale 1e-3": normal(0, 1e-3), "mixture": mixture, "mixture 2": mixture,
    "mixture 3": mixture, "scale 3000": normal(0, 3000.0), "scale 1e5": normal(0, 1e5), "scale 1e-5": normal(0, 1e-5),
    "scale 1e-7": normal(0, 1e-7),
}  # fmt: skip
PARAMETERS = ("own", "redrawn", "wild")


@dataclass
class Draw:
    """Inputs with their expected outputs. `family`, `seed`, `parameters` and `numbers` say how to draw it again."""

    family: str
    seed: int
    parameters: str
    numbers: Numbers
    inputs: Tensors
    expected: list[Expected]


def draw_state(reference: Reference, parameters: str, number: int | None = None) -> State:
    """`own`: as constructed. `redrawn`: around those. `wild`: of any sign and over several magnitudes."""
    g = torch.Generator().manual_seed(number_of(reference.name, parameters) if number is None else number)
    state = {}
    for name, tensor in reference.own.items():
        if parameters == "own" or not tensor.is_floating_point():
            state[name] = tensor.clone()
            continue
        spread = float(tensor.std()) if tensor.numel() > 1 else 0.0
        constant = spread == 0.0
        if name.endswith("var"):
            low, high = (0.2, 3.0) if parameters == "redrawn" else (1e-3, 30.0)
            drawn = low * (high / low) ** torch.rand(tensor.shape, generator=g)
        elif constant:
            wide = 0.5 if parameters == "redrawn" else 2.0
            drawn = tensor + wide * torch.randn(tensor.shape, generator=g)
        else:
            wide = spread if parameters == "redrawn" else 3 * spread
            drawn = tensor.mean() + wide * torch.randn(tensor.shape, generator=g)
        state[name] = drawn.to(tensor.dtype)
    return state


def draw_inputs(reference: Reference, family: str, seed: int, number: int) -> Tensors:
    """`base` is the problem's own draw."""
    base = reference.base(seed)
    g = torch.Generator().manual_seed(number)
    inputs = []
    for tensor, kind in zip(base, reference.kinds, strict=True):
        if family == "base":
            inputs.append(tensor)
        elif isinstance(kind, tuple):
            inputs.append(draw_integers(tensor, kind, family, g))
        elif kind == "boolean":
            share = {"sparse": 0.03, "positive": 1.0, "negative": 0.0}.get(family, float(torch.rand((), generator=g)))
            inputs.append(torch.rand(tensor.shape, generator=g) < share)
        elif kind == "sign":
            share = {"positive": 1.0, "negative": 0.0}.get(family, 0.5)
            inputs.append(torch.where(torch.rand(tensor.shape, generator=g) < share, 1.0, -1.0))
        else:
            drawn = (ORDINARY | EXTREME)[family](tuple(tensor.shape), g).float().contiguous()
            inputs.append(drawn.tril() if kind == "lower" else drawn)
    return inputs


def draw_integers(like: torch.Tensor, kind: tuple[int, ...], family: str, g: torch.Generator) -> torch.Tensor:
    low, high, *special = kind
    drawn = torch.randint(low, high, like.shape, generator=g)
    if family in ("positive", "negative", "ramp up", "ramp down"):
        drawn = {
            "positive": torch.full_like(drawn, high - 1), "negative": torch.full_like(drawn, low),
            "ramp up": drawn.flatten().sort()[0].reshape(drawn.shape),
            "ramp down": drawn.flatten().sort(descending=True)[0].reshape(drawn.shape),
        }[family]  # fmt: skip
    elif family in ("bimodal", "quantised"):
        drawn = torch.where(torch.rand(like.shape, generator=g) < 0.5, low, high - 1)
    elif family == "sparse":
        drawn = torch.randint(low, min(low + 2, high), like.shape, generator=g)
    if special and family != "normal":
        drawn = torch.where(torch.rand(like.shape, generator=g) < 0.2, special[0], drawn)
    return drawn


def number_of(*parts: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")


def numbers_of(reference: Reference, family: str, seed: int, parameters: str) -> Numbers:
    """What generators start from. A witness keeps them: it repeats wherever the checkout lies."""
    return {
        "state": number_of(reference.name, parameters), "inputs": number_of(reference.name, family, seed),
        "climb": number_of("climb", reference.name, family, seed),
    }  # fmt: skip


def make_pool(reference: Reference) -> list[Draw]:
    """Draws in the order in which they are tried: the problem's own first, extreme ones last."""
    big = reference.elements >= BIG
    has_state = any(tensor.is_floating_point() for tensor in reference.own.values())
    plan = [("base", seed, "own") for seed in range(1, 4 if big else 7)]
    kinds = set(map(str, reference.kinds))
    families = [name for name in ORDINARY if name != "quantised" or "no ties" not in kinds]
    extremes = list(EXTREME)
    if big:
        families = [
            name
            for name in families
            if name in ("normal", "shift -3", "scale 4", "quantised", "rows", "columns", "row means", "sparse")
        ]
        extremes = [
            name
            for name in extremes
            if name
            in ("heavy", "scale 0.01", "shift 100", "scale 200", "mixture", "scale 1e-3", "scale 1e5", "scale 1e-5")
        ]
    if has_state:
        plan += [("base", 7, "redrawn"), ("normal", 8, "redrawn"), ("base", 9, "wild")]
    for number, family in enumerate(families + extremes):
        parameters = ("own", "redrawn", "own", "wild")[number % 4] if has_state else "own"
        plan.append((family, 10 + number, parameters))
        if has_state and not big and parameters != "own":
            plan.append((family, 60 + number, "own"))
    pool = []
    states = {parameters: draw_state(reference, parameters) for parameters in PARAMETERS}
    for family, seed, parameters in plan:
        numbers = numbers_of(reference, family, seed, parameters)
        inputs = draw_inputs(reference, family, seed, numbers["inputs"])
        expected = reference.expect(inputs, states[parameters])
        if expected is not None:
            pool.append(Draw(family, seed, parameters, numbers, inputs, expected))
    return pool


# -- one mutant ------------------------------------------------------------------------------------


class Instance:
    """One model with its buffers, called as a judge calls."""

    def __init__(self, namespace: dict[str, Any], reference: Reference, state: State, device: str = "cpu") -> None:
        torch.manual_seed(42)
        self.model = namespace["ModelNew"](*reference.module.get_init_inputs()).to(device)
        self.model.load_state_dict(state)
        self.buffers = [tensor.to(device, copy=True) for tensor in reference.base(0)]
        self(reference.base(0))

    def __call__(self, inputs: Tensors) -> Tensors:
        for buffer, tensor in zip(self.buffers, inputs, strict=True):
            buffer.copy_(tensor)
        with torch.no_grad():
            found = [tensor.to("cpu", copy=True) for tensor in outputs_of(self.model(*self.buffers))]
        if not all(torch.equal(buffer.cpu(), tensor) for buffer, tensor in zip(self.buffers, inputs, strict=True)):
            raise WrongKindError("writes its input")
        return found


def honest_scores(seed: Seed, reference: Reference, pool: Sequence[Draw]) -> list[float]:
    """The seed's own score on each draw."""
    namespace = execute(stand_alone(seed.text), "seed")
    scores = []
    for parameters in PARAMETERS:
        draws = [(index, draw) for index, draw in enumerate(pool) if draw.parameters == parameters]
        if draws:
            instance = Instance(namespace, reference, draw_state(reference, parameters))
            scores += [(index, score(instance(draw.inputs), draw.expected)[0]) for index, draw in draws]
    return [value for _, value in sorted(scores)]


def examine(mutant: Mutant, reference: Reference, pool: Sequence[Draw], honest: Sequence[float]) -> dict[str, Any]:
    """What came of the search: {"dropped": reason} or {"witness": ..., "base_score": ..., "base_share": ...}."""
    namespace = execute(mutant.source, "mutant")
    facts: dict[str, Any] = {}
    best: list[tuple[float, int]] = []
    witness = None
    for parameters in PARAMETERS:
        draws = [
            (index, draw) for index, draw in enumerate(pool)
            if draw.parameters == parameters and honest[index] <= HONEST
        ]  # fmt: skip
        if not draws or witness:
            continue
        answer = in_child(lambda p=parameters, d=draws: try_draws(namespace, reference, p, d))
        if "dropped" in answer:
            return answer
        best += answer["best"]
        if parameters == "own":
            facts = {"base_score": answer["base_score"], "base_share": answer["base_share"]}
        witness = answer.get("witness")
    if not witness:
        starts = [pool[index] for _, index in sorted(best, reverse=True)[:3]]
        answer = in_child(lambda: climb(mutant, namespace, reference, starts))
        witness = answer.get("witness")
    if not witness:
        return {"dropped": "no witness"}
    again = in_child(lambda: replay(mutant, reference, witness, namespace))
    if again.get("score", 0.0) <= 1:
        return {"dropped": "witness does not repeat"}
    return facts | {"witness": witness | {"calls": again["calls"]}}


def try_draws(namespace: dict[str, Any], reference: Reference, parameters: str, draws: Any) -> dict[str, Any]:
    instance = Instance(namespace, reference, draw_state(reference, parameters))
    best, base_score, base_share = [], 0.0, 0.0
    witness = None
    for index, draw in draws:
        if witness and draw.family != "base":
            break
        worst, share = score(instance(draw.inputs), draw.expected)
        if draw.family == "base" and parameters == "own":
            base_score, base_share = max(base_score, worst), max(base_share, share)
        if worst > 1 and witness is None:
            witness = {
                "family": draw.family, "seed": draw.seed, "parameters": parameters, "numbers": draw.numbers,
                "moves": [], "score": round(worst, 3), "share": round(share, 6),
            }  # fmt: skip
        best.append((worst, index))
    answer = {"best": best, "base_score": round(base_score, 3), "base_share": round(base_share, 6)}
    return answer | ({"witness": witness} if witness else {})


def climb(mutant: Mutant, namespace: dict[str, Any], reference: Reference, starts: Sequence[Draw]) -> dict[str, Any]:
    """Adversarial coordinate search: changes to single elements, rows, scales, kept while the error grows."""
    if reference.elements >= BIG:
        return {}
    steps = 20 if mutant.seed.language == "triton" else 120
    seed_namespace = execute(stand_alone(mutant.seed.text), "seed")
    for start in starts:
        state = draw_state(reference, start.parameters)
        instance, honest = Instance(namespace, reference, state), Instance(seed_namespace, reference, state)
        inputs, best, moves = start.inputs, score(instance(start.inputs), start.expected)[0], []
        g = torch.Generator().manual_seed(start.numbers["climb"])
        for step in range(steps):
            changed = change(inputs, reference.kinds, g)
            expected = reference.expect(changed, state)
            if expected is None or score(honest(changed), expected)[0] > HONEST:
                continue
            worst, share = score(instance(changed), expected)
            if worst > 1:
                return {"witness": {
                    "family": start.family, "seed": start.seed, "parameters": start.parameters,
                    "numbers": start.numbers, "moves": [*moves, step],
                    "score": round(worst, 3), "share": round(share, 6),
                }}  # fmt: skip
            if worst >= best:
                inputs, best = changed, worst
                moves.append(step)
    return {}


def witness_inputs(reference: Reference, witness: dict[str, Any]) -> Tensors:
    """The inputs that a manifest's witness names: a draw, and the moves that were kept."""
    inputs = draw_inputs(reference, witness["family"], witness["seed"], witness["numbers"]["inputs"])
    g = torch.Generator().manual_seed(witness["numbers"]["climb"])
    for step in range(max(witness["moves"], default=-1) + 1):
        changed = change(inputs, reference.kinds, g)
        inputs = changed if step in witness["moves"] else inputs
    return inputs


def replay(
    mutant: Mutant, reference: Reference, witness: dict[str, Any], namespace: dict[str, Any] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:  # fmt: skip
    """A base draw, then the witness again and again until a call is wrong: its score, and how many calls it took."""
    state = draw_state(reference, witness["parameters"], witness["numbers"]["state"])
    inputs = witness_inputs(reference, witness)
    expected = reference.expect(inputs, state)
    assert expected is not None
    instance = Instance(namespace or execute(mutant.source, "mutant"), reference, state, device)
    worst, calls = 0.0, 0
    while worst <= 1 and calls < REPEATS:
        worst, calls = score(instance(inputs), expected)[0], calls + 1
    return {"score": worst, "calls": calls}


PALETTE = (0.0, 1.0, -1.0, 0.5, -0.75, 2.0, -3.0, 6.5, -6.5, 12.0, -25.0, 60.0, -120.0, 1e3, -1e3, 1e-4, -1e-6, 7e4)


def change(inputs: Tensors, kinds: Sequence[Any], g: torch.Generator) -> Tensors:
    """One random move; integers and booleans stay."""
    movable = [i for i, kind in enumerate(kinds) if kind in ("real", "nonzero", "no ties", "lower")]
    if not movable:
        return inputs
    inputs = [tensor.clone() for tensor in inputs]
    tensor = inputs[movable[int(torch.randint(0, len(movable), (), generator=g))]]
    value = PALETTE[int(torch.randint(0, len(PALETTE), (), generator=g))]
    move = int(torch.randint(0, 7, (), generator=g))
    flat = tensor.view(-1)
    at = int(torch.randint(0, flat.numel(), (), generator=g))
    if move == 0:
        flat[at] = value
    elif move == 1:
        tensor[tuple(int(torch.randint(0, size, (), generator=g)) for size in tensor.shape[:1])] = value
    elif move == 2:
        tensor *= 10 ** float(2 * torch.rand((), generator=g) - 1)
    elif move == 3:
        tensor += value
    elif move == 4:
        tensor[torch.rand(tensor.shape, generator=g) < 0.1] = value
    elif move == 5:
        flat[at:] = -flat[at:]
    else:
        tensor += value * 0.1 * torch.randn(tensor.shape, generator=g)
    return [t.tril() if kind == "lower" else t for t, kind in zip(inputs, kinds, strict=True)]


# -- processes -------------------------------------------------------------------------------------


def in_child(work: Callable[[], dict[str, Any]], timeout_s: float = MUTANT_S) -> dict[str, Any]:
    """Runs `work` in a fork; a crash, an error or a hang is a reason to drop."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setpgid(0, 0)
            with open(os.devnull, "w") as null:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
            os.close(read)
            try:
                answer = work()
            except WrongKindError as e:
                answer = {"dropped": str(e)}
            except Exception as e:
                answer = {
                    "dropped": "does not build" if "CalledProcessError" in type(e).__name__ else "raises",
                    "error": repr(e)[:300],
                }
            with os.fdopen(write, "wb") as pipe:
                pipe.write(json.dumps(answer).encode())
        except BaseException:
            status = 1
        os._exit(status)
    os.close(write)
    data, deadline = b"", time.monotonic() + timeout_s
    try:
        os.set_blocking(read, False)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([read], [], [], left)[0]:
                return {"dropped": "hangs"}
            part = os.read(read, 1 << 16)
            if not part:
                break
            data += part
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(data) if data else {"dropped": "crashes"}


# -- all of them -----------------------------------------------------------------------------------


def search(seed: Seed, mutants: Sequence[Mutant]) -> Iterator[dict[str, Any]]:
    """A record for each mutant: with its witness, or with the reason why it was dropped."""
    reference = Reference(seed.problem)
    pool = make_pool(reference)
    if seed.language == "triton":
        pool = [draw for number, draw in enumerate(pool) if number % 2 == 0 or draw.parameters != "own"]
    honest = honest_scores(seed, reference, pool)
    usable = [draw for draw, value in zip(pool, honest, strict=True) if value <= HONEST and draw.family == "base"]
    if not usable:
        raise AssertionError(f"{seed.name} is wrong on the problem's own draws: {honest[:3]}")
    for mutant in mutants:
        yield as_record(mutant) | in_child(lambda m=mutant: examine(m, reference, pool, honest), 6 * MUTANT_S)


def write_manifest(found: Sequence[dict[str, Any]]) -> None:
    """The mutants with a witness, and how many were dropped and why; only what the generator makes today."""
    today = {mutant.id: mutant for seed in load_seeds() for mutant in candidates(seed)}
    records = sorted((record for record in found if record["id"] in today), key=lambda record: record["id"])
    searched = {record["id"] for record in records}
    missing = [mutant for name, mutant in sorted(today.items()) if name not in searched]
    records += [as_record(mutant) | {"dropped": "not searched"} for mutant in missing]
    kept = [record for record in records if "dropped" not in record]
    MANIFEST.write_text("".join(json.dumps(record) + "\n" for record in kept))
    dropped: dict[str, Counter[str]] = {"all": Counter()}
    for record in records:
        if "dropped" in record:
            dropped["all"][record["dropped"]] += 1
            dropped.setdefault(record["operator"], Counter())[record["dropped"]] += 1
    ordered = {name: dict(sorted(counts.items())) for name, counts in sorted(dropped.items())}
    DROPPED.write_text(json.dumps({"generated": len(records), "kept": len(kept), "dropped": ordered}, indent=1) + "\n")


def confirm(device: str) -> None:
    """Replays the witnesses of the mutants in Triton and CUDA on a GPU; prints those that are right there."""
    counts: Counter[str] = Counter()
    references: dict[str, Reference] = {}
    for record in load_manifest():
        mutant = from_record(record)
        if mutant.seed.language not in ("triton", "cuda"):
            continue
        reference = references.setdefault(mutant.seed.problem, Reference(mutant.seed.problem))
        try:
            wrong = replay(mutant, reference, record["witness"], device=device)["score"] > 1
        except Exception as e:
            counts["fails"] += 1
            print(f"{mutant.id}: {e!r}"[:200], flush=True)
            continue
        counts["wrong" if wrong else "right"] += 1
        if not wrong:
            print(f"{mutant.id}: right on {device}", flush=True)
    print(dict(counts))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", default=["*"], help="patterns of seeds' names")
    parser.add_argument("--found", type=Path, help="search; JSON lines are appended, seeds that are in it are done")
    parser.add_argument("--manifest", action="store_true", help="write the manifest from --found")
    parser.add_argument("--device", help="replay the manifest's Triton and CUDA witnesses there, such as cuda")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    if options.device:
        confirm(options.device)
    if options.found:
        options.found.touch()
        found = [json.loads(line) for line in options.found.read_text().splitlines()]
        if options.manifest:
            write_manifest(found)
        else:
            search_all(options.seeds, {record["seed"] for record in found}, options.found)


def search_all(patterns: Sequence[str], done: set[str], path: Path) -> None:
    for pattern in patterns:
        for seed in load_seeds(pattern):
            if seed.name in done:
                continue
            started, counts = time.monotonic(), Counter()
            records = list(search(seed, list(candidates(seed))))
            with open(path, "a") as file:
                for record in records:
                    counts[record.get("dropped", "witness")] += 1
                    file.write(json.dumps(record) + "\n")
            done.add(seed.name)
            print(f"{seed.name}: {time.monotonic() - started:.0f} s, {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
