"""What a problem's reference is like: an audit runs it as a job does, without any submission, and reports numbers.

Up to two states of the model are looked at: as the problem gives it, on D1-D4; and, where its construction leaves
constants, with these redrawn, on D1-D4 and every probe, which is what a protocol that redraws judges. (Without
constants the first state has the probes as well.) Seeds are fixed, so that equal problems give equal audits on equal
machines. Beyond a job's own questions the reference is asked for a repeated call, for one input drawn anew, and for a
call with noise on one parameter.

It decides nothing: `kbenv.audit` reads findings off the numbers. Two draws show no rare event, and what matters only on
other inputs than plain draws looks unused.
"""

from __future__ import annotations

import math
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from ..layout import Arena
from ..wire import Message
from .arm import REFERENCE_S, ArmError
from .blocks import PLAIN
from .checks import prepare_probe
from .compare import CHUNK_ELEMENTS
from .faults import InfrastructureFault
from .job import Job
from .place import NULL, REFERENCE, Place
from .plan import DoesNotFitError, Plan
from .seeds import Seeds
from .slots import copy_slots
from .timing import measure_alone

_PERTURBATION = 0.1
"""Noise on a parameter, as a share of its root mean square."""
_RANDOM = 1e-3
_SMALL = 1e-2
_LEAST_CALLS = 12
"""In less time than these take nothing is learnt that is worth having."""


class Audit(Job):
    """The audit of `spec`'s problem; runs once. `limits.job_s` ends it early: what was left out is in `skipped`."""

    at_start = (REFERENCE, NULL)

    def __init__(self, spec: Message, place: Place, report: Callable[[str], None]) -> None:
        super().__init__(spec, place, report)
        self.seeds = fixed_seeds(self.protocol)
        self._redrawing = False
        self._peak_bytes = 0
        self._skipped: list[str] = []
        self._found: Message = {
            "failure": None, "size": None, "tensors": [], "given": None, "redraw": None, "redrawn": None,
            "randomness": None, "mutated": [], "inputs": [], "parameters": [],
        }  # fmt: skip

    def run(self) -> Message:
        """The facts for the host; that the reference fails is one of them.

        Raises:
            InfrastructureFault: there is no audit: no memory, no time, or a fault of ours.
        """
        with self._place, self._stack:
            try:
                self._phase("reference", self.start_reference)
                self._expect_time()
                self._phase("given", self._look_at_given)
                self._phase("redrawn", self._look_at_redrawn)
                self._phase("inputs", self._redraw_inputs)
                self._phase("parameters", self._perturb_parameters)
                self._phase("timing", self._time)
            except DoesNotFitError as e:
                raise InfrastructureFault("memory", str(e)) from e
            except InfrastructureFault as fault:
                if not _is_of_the_problem(fault):
                    raise
                self._found["failure"] = str(fault)
        return self._found | {
            "no_float64": self.truth.no_exact, "skipped": self._skipped, "seeds": self.seeds.to_json(),
            "seconds": self.seconds,
        }  # fmt: skip

    def _expect_time(self) -> None:
        needed_s = _LEAST_CALLS * self.forward_ms / 1e3
        if needed_s > self._deadline - time.monotonic():
            raise InfrastructureFault(
                "sandbox",
                f"one call of the reference takes {self.forward_ms / 1e3:.3g} s here: too long for an audit within "
                f"{self.protocol['limits']['job_s']:.4g} s; allow more time, or use a faster device",
            )

    def _is_late(self, what: str) -> bool:
        if time.monotonic() < self._deadline:
            return False
        self._skipped.append(what)
        return True

    # -- the model in its states --------------------------------------------------------------------------------------

    def _look_at_given(self) -> None:
        self._found["size"] = self._size()
        self._found["tensors"] = self._ask("describe_tensors")["tensors"]
        self._found["given"] = self._look()
        self._found["randomness"], self._found["mutated"] = self._look_for_chance()
        self._found["given"]["distributions"] = list(self._try_hidden())

    def _look_at_redrawn(self) -> None:
        """Builds the model anew with constants redrawn and stays with it, where there are any and where that works."""
        state = self._found["given"]
        if self.protocol["redraw_parameters"] and not self._is_late("redrawn parameters"):
            self._redrawing = True
            found = self._found["redraw"] = {"error": None, "drawn": [], "left": []}
            try:
                self._start_anew()
                if self._redrawn:
                    found["drawn"] = self._redrawn
                    found["left"] = self._left_constant()
                    redrawn = self._look()
                    redrawn["distributions"] = list(self._try_hidden())
                    self._found["redrawn"] = state = redrawn
            except InfrastructureFault as fault:
                if not _is_of_the_problem(fault):
                    raise
                found["error"] = str(fault)
                self._redrawing = False
                self._start_anew()
        state["distributions"].extend(self._try_probes())

    def _left_constant(self) -> list[str]:
        """Names of tensors that have the constant that they were given. (One number alone is always constant.)"""
        given = {tensor["name"]: tensor["constant"] for tensor in self._found["tensors"]}
        return [
            tensor["name"] for tensor in self._ask("describe_tensors")["tensors"]
            if tensor["constant"] is not None and tensor["constant"] == given.get(tensor["name"])
        ]  # fmt: skip

    def redraw(self, known: list[Message] | None) -> Message | None:
        return super().redraw(known) if self._redrawing else None

    def _make_plan(self, facts: Message) -> Plan:
        self._peak_bytes = facts["peak_bytes"]
        return super()._make_plan(facts)

    def _size(self) -> Message:
        on_device, plan = self.device == "cuda", self.plan
        return {
            "forward_ms": self.forward_ms, "device_ms": None,
            "input_bytes": self.signature.inputs.slot_bytes, "output_bytes": self.signature.outputs.slot_bytes,
            "weight_bytes": sum(item["bytes"] for item in self._state),
            "peak_bytes": self._peak_bytes if on_device else None,
            "need_bytes": plan.need_bytes, "have_bytes": plan.have_bytes, "slots": plan.slots,
            "exclusive": plan.exclusive, "draws_on_device": self.on_device,
        }  # fmt: skip

    def _look(self) -> Message:
        """Two plain draws: what comes out, how sure it is, and what a submission could pass with that ignores them."""
        first, second = self.seeds.standard[:2]
        self.prepare([second])
        other = Arena(self.store.expected.slot(0).to("cpu", copy=True), self.signature.outputs, 1)
        self.prepare([first])
        ill = self.truth.calibrate(0)
        outputs = self._outputs()
        for index, output in enumerate(outputs):
            leaf = self.signature.outputs.leaves[index]
            output |= {"shape": list(leaf.shape), "dtype": leaf.dtype}
            output |= compare_draws(self.store.expected, other, index, output["mean"], self.device)
        errors = self._errors()
        return {"outputs": outputs, "errors": errors, "ill_conditioned": ill is not None, "distributions": []}

    def _outputs(self) -> list[Message]:
        """The expected output in slot 0, and the root mean square of the reference's own error in it without TF32."""
        exact = [self.truth.errors.get(variant, {}) for variant in ("rounding", "jitter")]
        return [
            describe(self.store.expected, index, self.device)
            | {"noise": number(max((errors[index].rms for errors in exact if index in errors), default=0.0))}
            for index in range(len(self.signature.outputs.leaves))
        ]

    def _errors(self) -> dict[str, float]:
        """Of the check calibrated last, by variant: the largest relative error of an output."""
        return {
            variant: number(max((error.relative for error in errors.values()), default=0.0))
            for variant, errors in self.truth.errors.items()
        }

    # -- distributions ------------------------------------------------------------------------------------------------

    def _try_hidden(self) -> Iterator[Message]:
        for hidden, seed in zip(self.protocol["hidden_inputs"], self.seeds.hidden, strict=True):
            prepare = partial(self.prepare, [seed], factor=hidden["factor"])
            yield from self._try(hidden["name"], prepare, partial(self.truth.calibrate, 0))

    def _try_probes(self) -> Iterator[Message]:
        for probe, seed in zip(self.protocol["probes"], self.seeds.probes, strict=True):
            prepare, calibrate = (
                partial(prepare_probe, self, probe, seed),
                partial(self.truth.calibrate, 0, drawn=False),
            )
            yield from self._try(probe, prepare, calibrate)

    def _try(self, name: str, prepare: Callable[..., object], calibrate: Callable[[], str | None]) -> Iterator[Message]:
        """What the reference makes of one distribution; nothing when time is over."""
        if self._is_late(name):
            return
        found: Message = {"name": name, "touched": True, "error": None, "outputs": [], "errors": {}}
        found |= {"ill_conditioned": False, "dropped": self.problem["dropped"].get(name)}
        try:
            found["touched"] = not isinstance(prepare(first=0), str)
            if found["touched"]:
                found["ill_conditioned"] = calibrate() is not None
                found |= {"outputs": self._outputs(), "errors": self._errors()}
        except InfrastructureFault as fault:
            if not _is_of_the_problem(fault):
                raise
            found["error"] = str(fault)
            self._start_anew()
        yield found

    # -- chance, inputs, parameters -----------------------------------------------------------------------------------

    def _look_for_chance(self) -> tuple[Message, list[int]]:
        """Equal calls on the plain draw in slot 0; and which inputs a call changes."""
        mutated = self._call()
        repeat = relative_change(self.store.expected, self.store.snapshot, self.device)
        with self.reference_faults(), self.trusted.lent_to(self.arm("reference")):
            copy_slots(self.store.masters, self.trusted.inputs, 0, 1)
            self.synchronize()
            drew = self._ask("watch_generator", slot=0)["drew"]
        evaluated = None
        if repeat > _RANDOM:
            self._ask("evaluate", on=True)
            self._call()
            self.store.expect_snapshot()
            self._call()
            evaluated = relative_change(self.store.expected, self.store.snapshot, self.device)
            self._ask("evaluate", on=False)
        return {"repeat": repeat, "draws": drew, "repeat_in_evaluation": evaluated}, mutated

    def _redraw_inputs(self) -> None:
        """How much the output changes when one input alone is drawn anew."""
        self.prepare([self.seeds.standard[0]])
        masters, drawn = self.store.masters, self.trusted
        for index, leaf in enumerate(self.signature.inputs.leaves):
            if self._is_late(f"input {index}"):
                return
            master = masters.flat_leaf(0, index)
            kept = master.clone()
            reference = self.arm("reference")
            with self.reference_faults(), drawn.lent_to(reference):
                seeds = [self.seeds.standard[1]]
                reference.ask("draw", timeout_s=REFERENCE_S, first=0, seeds=seeds, on_device=self.on_device)
                master.copy_(drawn.inputs.flat_leaf(0, index))
                self.synchronize()
            varies = not torch.equal(master.view(torch.uint8), kept.view(torch.uint8))
            change, error = self._try_call() if varies else (None, None)
            master.copy_(kept)
            self.synchronize()
            self._found["inputs"].append(
                {"shape": list(leaf.shape), "dtype": leaf.dtype, "varies": varies, "change": change, "error": error}
            )

    def _perturb_parameters(self) -> None:
        """How much the output changes with noise on one parameter alone, on the plain draw prepared before."""
        names = [tensor["name"] for tensor in self._found["tensors"] if tensor["role"] == "parameter"]
        floating = {tensor["name"] for tensor in self._found["tensors"] if "float" in tensor["dtype"]}
        for index, name in enumerate(names):
            if name not in floating:
                continue
            if self._is_late(f"{len(names) - index} of {len(names)} parameters"):
                return
            self._ask("perturb_parameter", index=index, seed=self.seeds.transform + index, share=_PERTURBATION)
            change, error = self._try_call()
            self._found["parameters"].append({"name": name, "change": change, "error": error})
            if error is None:
                self._ask("restore_parameter")

    def _try_call(self) -> tuple[float | None, str | None]:
        """The relative change against the expected output, or the error that the reference raised."""
        try:
            self._call()
        except InfrastructureFault as fault:
            if not _is_of_the_problem(fault):
                raise
            self._start_anew()
            return None, str(fault)
        return relative_change(self.store.expected, self.store.snapshot, self.device), None

    def _call(self) -> list[int]:
        """The reference without TF32 on the masters in slot 0, its output in the snapshot. Which inputs it changed."""
        reference, masters = self.arm("reference"), self.store.masters
        with self.reference_faults(), self.trusted.lent_to(reference):
            reference.ask("tf32", timeout_s=REFERENCE_S, tf32=self.protocol["tf32"]["reference_correctness"])
            self.clock.turn(reference, self.trusted, first=0, calls=1, gated=False, deadline_s=REFERENCE_S)
            changed = [
                index for index in range(len(masters.layout.leaves))
                if not _equal(masters, self.trusted.inputs, index, self.device)
            ]  # fmt: skip
            reference.ask("tf32", timeout_s=REFERENCE_S, tf32=self.protocol["tf32"]["reference_timing"])
        return changed

    def _time(self) -> None:
        """On a GPU: the latency by the judge's gated clock. What the host's launches cost is in `forward_ms` alone."""
        if self.device == "cuda" and not self._is_late("timing"):
            self.truth.close_checks()
            measure_alone(self)
            self._found["size"]["device_ms"] = statistics.median(self.reference_alone)

    def _ask(self, op: str, **content: Any) -> Message:
        with self.reference_faults():
            return self.arm("reference").ask(op, timeout_s=REFERENCE_S, **content)

    def _start_anew(self) -> None:
        """A new process for the reference, in the present state."""
        with self.reference_faults():
            self.recreate_reference()
        self.truth.close_checks()  # the float64 slot was mapped in the old one


def fixed_seeds(protocol: Message) -> Seeds:
    """Of every audit. Large and unlike the small ones that people choose."""
    counts = [protocol["standard_trials"], len(protocol["hidden_inputs"]), len(protocol["probes"])]
    trials = [int(seed) for seed in torch.randint(0, 2**31, (sum(counts),), generator=torch.Generator().manual_seed(1))]
    standard, hidden, _ = counts
    return Seeds(
        construction=protocol["construction_seed"], redraw=1 << 40, standard=trials[:standard],
        hidden=trials[standard : standard + hidden], probes=trials[standard + hidden :],
        transform=1 << 41, timed_base=1 << 42,
    )  # fmt: skip


def _is_of_the_problem(fault: InfrastructureFault) -> bool:
    """Whether the reference itself is at fault, and not this machine's speed or memory."""
    cause = fault.__cause__
    lacking = isinstance(cause, ArmError) and (cause.kind == "timeout" or cause.signal == signal.SIGKILL)
    return fault.kind == "reference" and not lacking


# -- numbers ----------------------------------------------------------------------------------------------------------


def describe(arena: Arena, index: int, device: str) -> Message:
    """One output in slot 0, over its finite elements; complex ones by their parts.

    `spread` is the standard deviation, `small_share` the share of elements below 1e-2 in size. Mean, spread, rms and
    max_abs are None where nothing is finite.
    """
    leaf = arena.layout.leaves[index]
    pivot, finite, total, squares, own_squares, largest, small = None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    elements = 0
    for part in _parts(arena, index, device):
        usual = torch.isfinite(part)
        if pivot is None and bool(usual.any()):
            pivot = float(part[usual][0])  # differences from it: equal elements have no spread at all
        x = torch.where(usual, part, pivot or 0.0)
        difference = x - (pivot or 0.0)
        sums = [
            usual.sum().double(), difference.sum(dtype=torch.float64), _squares(difference),
            _squares(torch.where(usual, x, 0.0)), torch.where(usual, x, 0.0).abs().max().double(),
            (usual & (x.abs() < _SMALL)).sum().double(),
        ]  # fmt: skip
        count, shift, square, own, size, below = torch.stack(sums).tolist()
        elements += part.numel()
        finite, total, squares, own_squares = finite + count, total + shift, squares + square, own_squares + own
        largest, small = max(largest, size), small + below
    found: Message = {"elements": leaf.elements, "nonfinite": elements - int(finite), "small_share": 0.0}
    if not finite:
        return found | {"mean": None, "spread": None, "rms": None, "max_abs": None}
    mean = total / finite
    return found | {
        "small_share": small / finite, "mean": number((pivot or 0.0) + mean),
        "spread": number(math.sqrt(max(0.0, squares / finite - mean * mean))),
        "rms": number(math.sqrt(own_squares / finite)), "max_abs": number(largest),
    }  # fmt: skip


def compare_draws(first: Arena, second: Arena, index: int, mean: float | None, device: str) -> Message:
    """What two draws of one output have in common: `between`, the root mean square of their difference, and tolerances.

    A tolerance is the smallest that, as absolute and relative tolerance at once (torch.allclose), admits a wrong output
    in place of `second`: zeros, the `mean` of `first` everywhere, `first` itself (`frozen`). None: no tolerance does,
    since elements are not finite, or are integers and differ.
    """
    leaf = first.layout.leaves[index]
    exact = not (leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex)
    wrong = {"zeros": 0.0, "mean": 0.0, "frozen": 0.0}
    squares, count = 0.0, 0.0
    for a, b in zip(_parts(first, index, device), _parts(second, index, device), strict=True):
        both = torch.isfinite(a) & torch.isfinite(b)
        squares += float(_squares(torch.where(both, a - b, 0.0)))
        count += float(both.sum())
        for name, value in (("zeros", 0.0), ("mean", mean), ("frozen", a)):
            if value is None or not bool(both.all()):
                wrong[name] = math.inf
            elif exact:
                wrong[name] = math.inf if bool((b != value).any()) else wrong[name]
            else:
                wrong[name] = max(wrong[name], float(((b - value).abs() / (1 + b.abs())).max()))
    tolerances = {name: number(value) if math.isfinite(value) else None for name, value in wrong.items()}
    return {"between": number(math.sqrt(squares / count)) if count else None, "tolerances": tolerances}


def relative_change(expected: Arena, found: Arena, device: str) -> float:
    """The largest over the outputs of slot 0: the difference's root mean square over that of the larger one.

    Of integers, and of elements finite on one side only, the share that differs. 0.0 means equal, 2.0 opposite.
    """
    largest = 0.0
    for index, leaf in enumerate(expected.layout.leaves):
        squares, sizes, differing = 0.0, [0.0, 0.0], 0.0
        floating = leaf.torch_dtype.is_floating_point or leaf.torch_dtype.is_complex
        for a, b in zip(_parts(expected, index, device), _parts(found, index, device), strict=True):
            both = torch.isfinite(a) & torch.isfinite(b)
            if floating:
                differing += float((torch.isfinite(a) != torch.isfinite(b)).sum())
                squares += float(_squares(torch.where(both, a - b, 0.0)))
                sizes[0] += float(_squares(torch.where(both, a, 0.0)))
                sizes[1] += float(_squares(torch.where(both, b, 0.0)))
            else:
                differing += float((a != b).sum())
        change = math.sqrt(squares / max(sizes)) if max(sizes) > 0 else 0.0
        largest = max(largest, change, differing / max(1, leaf.elements))
    return number(largest)


def _squares(x: torch.Tensor) -> torch.Tensor:
    """Their sum in float64, without a copy in it."""
    norm: torch.Tensor = torch.linalg.vector_norm(x, dtype=torch.float64)
    return norm.square()


def _parts(arena: Arena, index: int, device: str) -> Iterator[torch.Tensor]:
    """An output's elements in slot 0, some at a time: as float64, or float32 where nothing comes near its range."""
    flat = arena.flat_leaf(0, index)
    for start in range(0, len(flat), CHUNK_ELEMENTS[device]):
        part = flat[start : start + CHUNK_ELEMENTS[device]].to(device)
        part = torch.view_as_real(part).reshape(-1) if part.is_complex() else part
        plain = part.dtype is torch.float32 and bool(torch.stack(torch.aminmax(part)).abs().max() < PLAIN)
        yield part if plain else part.double()


def _equal(masters: Arena, found: Arena, index: int, device: str) -> bool:
    a, b = masters.flat_leaf(0, index).view(torch.uint8), found.flat_leaf(0, index).view(torch.uint8)
    step = CHUNK_ELEMENTS[device] * 8
    return all(torch.equal(a[i : i + step].to(b.device), b[i : i + step]) for i in range(0, len(a), step))


def number(value: float) -> float:
    """Finite, as JSON wants it: squares of float64 may overflow."""
    return value if math.isfinite(value) else sys.float_info.max
