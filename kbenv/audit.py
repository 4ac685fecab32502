"""The audit of a problem: what its reference does on its device, and what that means for judging answers to it.

An audit holds numbers from the sandbox (`kbenv.sandbox.judge.audit`) and reads findings off them. What makes a problem
`degenerate` leaves it out of aggregates: no kernel could show anything there. What is in `notes` should be known.

    degenerate              the reference ...
    fails                   raises, or gives other shapes from call to call, or raises on a hidden distribution or probe
    no-finite-output        has no finite element in its output
    constant                has one value everywhere, whatever the inputs, up to its own rounding error
    input-independent       has the same output for all inputs, up to its own rounding error
    ill-conditioned         has a rounding error of 3% of its output or more: nothing can be held against it
    random                  disagrees with itself on equal inputs

Numbers are of one machine, and of fixed seeds: two plain draws, one of each distribution. Under a protocol that redraws
parameters the model is looked at in two states, `given` and `redrawn`; see `State`. An audit decides nothing in a job:
there the judge drops what it finds the reference not to bear.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import JsonValue, computed_field

from kbenv.audit_fact import (
    Distribution,
    DrawnOutput,
    Finding,
    Frozen,
    InputFacts,
    Output,
    ParameterFacts,
    Randomness,
    Redraw,
    Size,
    State,
    Tensor,
)
from kbenv.problems.problem import Problem
from kbenv.protocol import Protocol
from kbenv.verdict import Hardware

SCHEMA_VERSION = 1
TOLERANCES = (1e-4, 1e-3, 1e-2)
"""Absolute and relative at once, of the published protocols."""
BEYOND_NOISE = 3.0
"""A difference counts when it is larger than this many times the reference's own rounding error."""
RANDOM = 1e-3
"""Relative difference of two equal calls beyond which a reference is random: atomics stay below 1e-5."""
LAUNCH_BOUND_MS = 0.05
SMALL_RMS = 1e-2
_NAMED = 3


class Audit(Frozen):
    """Everything that was found about one problem on one machine.

    Attributes:
        source_sha256: of the source with the device's sizes in place.
        protocol: whose distributions, tolerances and limits were used.
        failure: why the reference does not get through an audit at all; what was found until then stands.
        randomness, mutated: of the model as given; `mutated` are indices of inputs that a call changes.
        inputs, parameters: of the model as it is judged (redrawn, where there is something to redraw).
        no_float64: why the reference does not run in float64; fp32 stands for it then.
        skipped: what the time limit left out.
    """

    schema_version: Literal[1] = 1
    problem: str
    source_sha256: str
    protocol: Protocol
    failure: str | None
    size: Size | None
    tensors: tuple[Tensor, ...]
    given: State | None
    redraw: Redraw | None
    redrawn: State | None
    randomness: Randomness | None
    mutated: tuple[int, ...]
    inputs: tuple[InputFacts, ...]
    parameters: tuple[ParameterFacts, ...]
    no_float64: str | None
    skipped: tuple[str, ...]
    hardware: Hardware
    software: dict[str, str | None]
    seeds: dict[str, JsonValue]
    seconds: dict[str, float]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def degenerate(self) -> tuple[Finding, ...]:
        """Why no kernel could show anything here; empty for a sound problem."""
        return tuple(_degenerate(self))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is worth knowing besides."""
        return tuple(_notes(self))

    @property
    def judged(self) -> State | None:
        """The model as a protocol that redraws parameters judges it."""
        return self.redrawn or self.given

    @property
    def identity_kinds(self) -> dict[str, int]:
        """Constant parameters by what they are, such as "BatchNorm2d.weight = 1", with their number."""
        return dict(Counter(f"{t.module}.{t.own_name} = {t.constant:g}" for t in self.tensors if t.is_identity))

    @property
    def key(self) -> tuple[str, ...]:
        """What makes another audit the same: problem, rules, machine and versions."""
        return audit_key(self.problem, self.source_sha256, self.protocol, self.hardware, self.software)


def source_hash(problem: Problem, device: str) -> str:
    """Of what is judged on `device`."""
    return hashlib.sha256(problem.source_for(device).encode()).hexdigest()


def audit_key(
    problem: str, source_sha256: str, protocol: Protocol, hardware: Hardware, software: dict[str, str | None]
) -> tuple[str, ...]:
    """As `Audit.key`, before there is one. Limits do not count: they change no number."""
    rules = hashlib.sha256(protocol.model_dump_json(exclude={"limits"}).encode()).hexdigest()
    versions = (f"{name} {software.get(name)}" for name in ("kbenv", "torch", "cuda", "image"))
    return (problem, source_sha256, rules, hardware.name, hardware.cpu, str(hardware.driver), *versions)


# -- findings: degenerate ---------------------------------------------------------------------------------------------


def _degenerate(audit: Audit) -> Iterator[Finding]:
    if audit.failure is not None:
        yield _finding("fails", f"the reference fails: {audit.failure}")
    states = [("", audit.given), (" with redrawn parameters", audit.redrawn)]
    for words, state in states:
        if state is not None:
            yield from _failing(state, words)
    if is_random(audit):
        yield _chance(audit.randomness)
        return  # what rounding does cannot be told from it
    for words, state in states:
        if state is not None and (finding := _emptiness(state, words)):
            yield finding
            break
    judged = audit.judged
    if judged is not None:
        yield from _sameness(judged)  # what is timed would be known beforehand
    if judged is not None and judged.ill_conditioned:
        words = " with redrawn parameters" if audit.redrawn is not None else ""
        yield _finding(
            "ill-conditioned", f"the reference's own rounding error is {largest_error(judged):.2g} of its output{words}"
        )


def is_random(audit: Audit) -> bool:
    """Whether two equal calls differ by more than atomics explain."""
    return audit.randomness is not None and audit.randomness.repeat > RANDOM


def _chance(found: Randomness | None) -> Finding:
    assert found is not None
    text = f"two equal calls differ by {found.repeat:.2g} of the output"
    evaluated = found.repeat_in_evaluation
    if evaluated is not None:
        text += "; in evaluation mode " + (f"still by {evaluated:.2g}" if evaluated > RANDOM else "they agree")
    return _finding("random", text)


def _failing(state: State, words: str) -> Iterator[Finding]:
    failing = [d for d in state.distributions if d.error is not None and d.dropped is None]
    if failing:
        names = ", ".join(d.name for d in failing)
        yield _finding(
            "fails", f"the reference fails on {names}{words}: {failing[0].error}", f"fails:{_joined(failing)}"
        )


def _emptiness(state: State, words: str) -> Finding | None:
    if all(output.mean is None for output in state.outputs):
        return _finding("no-finite-output", f"no element of the output is finite{words}")
    if is_constant(state.outputs) and not varying(state):
        values = ", ".join(f"{output.mean:.3g}" for output in state.outputs if output.mean is not None)
        return _finding("constant", f"the output is constant up to rounding, whatever the inputs{words}: {values}")
    if is_independent(state.outputs) and not varying(state):
        return _finding("input-independent", f"the output is the same for all inputs up to rounding{words}")
    return None


def _sameness(state: State) -> Iterator[Finding]:
    """The same output on all plain draws, where only other inputs tell a kernel from one that computes nothing."""
    if not varying(state):
        return
    if is_constant(state.outputs):
        yield _finding("constant-on-plain", f"constant on plain draws; varies on {', '.join(varying(state))}")
    elif is_independent(state.outputs):
        yield _finding("independent-on-plain", f"the same for plain draws; varies on {', '.join(varying(state))}")


def is_constant(outputs: Sequence[DrawnOutput]) -> bool:
    """Whether every output has one value on two plain draws, up to the reference's rounding error."""
    return is_independent(outputs) and all((output.spread or 0.0) <= BEYOND_NOISE * output.noise for output in outputs)


def is_independent(outputs: Sequence[DrawnOutput]) -> bool:
    """Whether every output is the same on two plain draws, up to the reference's rounding error."""
    return all((output.between or 0.0) <= BEYOND_NOISE * output.noise for output in outputs)


def varying(state: State) -> list[str]:
    """Distributions on which an output's mean or size differs from the plain draws', beyond rounding."""
    return [
        distribution.name
        for distribution in state.distributions
        if any(_differs(plain, other) for plain, other in zip(state.outputs, distribution.outputs, strict=False))
    ]


def _differs(plain: Output, other: Output) -> bool:
    allowed = BEYOND_NOISE * max(plain.noise, other.noise)
    pairs = ((plain.mean, other.mean), (plain.spread, other.spread), (plain.rms, other.rms))
    return any(a is not None and b is not None and abs(a - b) > allowed for a, b in pairs)


def largest_error(state: State) -> float:
    """The reference's largest relative error on a plain draw, TF32 included."""
    return max(state.errors.values(), default=0.0)


# -- findings: notes --------------------------------------------------------------------------------------------------


def _notes(audit: Audit) -> Iterator[Finding]:
    given, judged = audit.given, audit.judged
    if given is not None:
        yield from _notes_on_values(given, effects=not is_random(audit), judged=given is judged)
        if given.ill_conditioned and audit.redrawn is not None and not audit.redrawn.ill_conditioned:
            text = f"with its own parameters the reference's rounding error is {largest_error(given):.2g} of its output"
            yield _finding("ill-conditioned-as-given", text)
    if judged is not None:
        yield from _notes_on_distributions(judged, unsure=not is_random(audit))
    yield from _notes_on_parameters(audit)
    yield from _notes_on_inputs(audit)
    random = audit.randomness
    if random is not None and random.repeat <= RANDOM:
        if random.draws:
            yield _finding("draws-numbers", "forward takes random numbers, without an effect that two calls show")
        if random.repeat > 0:
            yield _finding("nondeterministic", f"two equal calls differ by {random.repeat:.2g} of the output")
    if audit.no_float64 is not None:
        yield _finding("no-float64", f"the reference does not run in float64: {audit.no_float64}")
    yield from _notes_on_size(audit)
    if audit.skipped:
        yield _finding("cut-short", f"the time limit left out {', '.join(audit.skipped)}")


def _notes_on_values(given: State, *, effects: bool, judged: bool) -> Iterator[Finding]:
    outputs = given.outputs
    if effects and not judged:
        yield from _sameness(given)
    words = {"zeros": "zeros", "mean": "the mean everywhere", "frozen": "the output of another draw"}
    for name, text in words.items():
        needed = [getattr(output.tolerances, name) for output in outputs]
        level = admitting_tolerance(needed)
        if level is not None:
            yield _finding(name, f"{text} passes a tolerance of {level:.0e}", f"{name}<={level:.0e}")
    nonfinite, elements = (sum(getattr(o, name) for o in outputs) for name in ("nonfinite", "elements"))
    if nonfinite:
        yield _finding("nonfinite", f"{nonfinite} of {elements} output elements are NaN or infinite on plain draws")
    sizes = [output.rms for output in outputs if output.rms is not None]
    if sizes and max(sizes) < SMALL_RMS:
        share = sum(output.small_share * output.elements for output in outputs) / max(1, elements)
        yield _finding("small", f"the output is {max(sizes):.2g} in size; {share:.0%} of it is below 0.01")


def admitting_tolerance(needed: Sequence[float | None]) -> float | None:
    """The smallest of TOLERANCES that admits a wrong output, all outputs together; None where none does."""
    if any(tolerance is None for tolerance in needed):
        return None
    largest = max((tolerance for tolerance in needed if tolerance is not None), default=0.0)
    return next((level for level in TOLERANCES if largest <= level), None)


def _notes_on_distributions(judged: State, *, unsure: bool) -> Iterator[Finding]:
    plain_is_finite = not any(output.nonfinite for output in judged.outputs)
    infinite = [d for d in judged.distributions if plain_is_finite and not d.is_finite]
    ill = [d for d in judged.distributions if d.ill_conditioned and d not in infinite]
    untouched = [d for d in judged.distributions if not d.touched]
    if infinite:
        yield _finding("nan-or-inf", f"NaN or infinite on {_names(infinite)}", f"nan-or-inf:{_joined(infinite)}")
    if ill and unsure:
        errors = ", ".join(f"{d.name} ({max(d.errors.values()):.2g})" for d in ill)
        text = f"the reference's own relative error is too large for a check on {errors}"
        yield _finding("unsure", text, f"unsure:{_joined(ill)}")
    if untouched and all(d.name[0] == "D" or not d.touched for d in judged.distributions):
        yield _finding("no-probe", "the inputs hold nothing that probes may change")


def _notes_on_parameters(audit: Audit) -> Iterator[Finding]:
    if kinds := audit.identity_kinds:
        counted = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
        yield _finding("identity", f"constant parameters: {counted}", f"identity({sum(kinds.values())})")
    if audit.redraw is not None and audit.redraw.error is not None:
        yield _finding("redraw-fails", f"constants cannot be redrawn: {audit.redraw.error}")
    if audit.redraw is not None:
        identities = {tensor.name for tensor in audit.tensors if tensor.is_identity}
        left = [name for name in audit.redraw.left if name in identities]
        if left:
            yield _finding("not-redrawn", f"redrawing does not reach {_few(left)}")
    unused = [p.name for p in audit.parameters if p.change is not None and _is_noise(audit, p.change)]
    if unused and not is_hopeless(audit):
        yield _finding("unused-parameter", f"no visible effect: {_few(unused)}", f"unused-parameter({len(unused)})")


def _notes_on_inputs(audit: Audit) -> Iterator[Finding]:
    same = [str(index) for index, item in enumerate(audit.inputs) if not item.varies]
    unused = [
        str(i) for i, item in enumerate(audit.inputs) if item.change is not None and _is_noise(audit, item.change)
    ]
    if same:
        yield _finding("same-input", f"the same in every draw: input {', '.join(same)}", f"same-input:{','.join(same)}")
    if unused and not is_hopeless(audit):
        flag = f"unused-input:{','.join(unused)}"
        yield _finding("unused-input", f"no visible effect: input {', '.join(unused)}", flag)
    if audit.mutated:
        indices = ",".join(map(str, audit.mutated))
        yield _finding("mutates", f"forward writes to input {indices}", f"mutates:{indices}")


def _notes_on_size(audit: Audit) -> Iterator[Finding]:
    size = audit.size
    if size is None:
        return
    took_ms = size.forward_ms if size.device_ms is None else size.device_ms
    if took_ms < LAUNCH_BOUND_MS:
        yield _finding("launch-bound", f"a call takes {took_ms:.3g} ms: little but its launch")
    if size.exclusive:
        yield _finding("exclusive", "the device holds one runner's memory at a time only")
    if not size.draws_on_device:
        yield _finding("cpu-draws", "get_inputs does not draw on the device")


def is_hopeless(audit: Audit) -> bool:
    """Whether the output is the same everywhere, or random, so that no effect can be seen."""
    return is_random(audit) or (audit.judged is not None and is_independent(audit.judged.outputs))


def _is_noise(audit: Audit, change: float) -> bool:
    errors = audit.judged.errors if audit.judged is not None else {}
    repeat = audit.randomness.repeat if audit.randomness is not None else 0.0
    return change <= BEYOND_NOISE * max(errors.get("rounding", 0.0), errors.get("jitter", 0.0), repeat)


def _finding(kind: str, text: str, flag: str | None = None) -> Finding:
    return Finding(kind=kind, flag=flag or kind, text=text)


def _names(distributions: Sequence[Distribution]) -> str:
    return ", ".join(d.name for d in distributions)


def _joined(distributions: Sequence[Distribution]) -> str:
    return ",".join(d.name for d in distributions)


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
