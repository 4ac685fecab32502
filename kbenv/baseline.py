"""Baselines: what PyTorch itself takes for a problem, eager under three settings of TF32, and compiled, on one machine.

They answer what a verdict alone cannot: how fast a submission is against another PyTorch than its protocol's. A
baseline belongs to one GPU, driver and PyTorch; used beside verdicts of others it is refused, never adjusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from kbenv.errors import UsageError
from kbenv.protocol import OFF, ON, TF32, TORCH_DEFAULT, Precision
from kbenv.record import parse_lines
from kbenv.verdict import Hardware, Verdict

VariantName = Literal["eager-fp32", "eager-default", "eager-tf32", "compiled"]
"""TF32 nowhere; as PyTorch sets it (in cuDNN's convolutions and recurrent layers, not in products); and everywhere."""
VARIANTS: tuple[VariantName, ...] = get_args(VariantName)
LARGE_GAIN = 1.5
"""KernelBench-Verified (arXiv 2607.16241) counts the problems that TF32 makes faster by more than this: 24% of 250."""
_EAGER: Mapping[TF32, VariantName] = {OFF: "eager-fp32", TORCH_DEFAULT: "eager-default", ON: "eager-tf32"}

MachineKey = tuple[str, str | None, str | None]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Variant(_Frozen):
    """One way to run the reference.

    Attributes:
        latency_ms: per call, on the judge's clock; None with `error`, which says why.
        clock: as in a verdict.
        peak_bytes: of one forward, inputs included, by the formula of a verdict's memory; None where not to be had.
        tf32: what PyTorch reported of its flags.
    """

    latency_ms: float | None
    turns_ms: tuple[float, ...]
    clock: Literal["judge-gated", "judge-open"] | None
    peak_bytes: int | None
    tf32: dict[str, str]
    error: str | None


class Baseline(_Frozen):
    """The baselines of one problem.

    Attributes:
        source_sha256: of the source with the device's sizes in place.
        variants: those that were asked for, by name. "compiled" is torch.compile with its defaults and TF32 on.
    """

    schema_version: Literal[1] = 1
    problem: str
    source_sha256: str
    precision: Precision
    variants: dict[VariantName, Variant]
    flags: tuple[str, ...] = Field(description="observations, one line each")
    hardware: Hardware
    software: dict[str, str | None]
    seconds: dict[str, float]

    @property
    def machine(self) -> MachineKey:
        return machine_key(self.hardware, self.software)

    def latency_ms(self, name: VariantName) -> float | None:
        """Of that variant; None where it was not measured."""
        variant = self.variants.get(name)
        return variant.latency_ms if variant is not None else None

    def tf32_gain(self, over: VariantName) -> float | None:
        """How many times as fast as `over` eager PyTorch is with TF32 everywhere."""
        slow, fast = self.latency_ms(over), self.latency_ms("eager-tf32")
        return None if slow is None or fast is None else slow / fast


def machine_key(hardware: Hardware, software: Mapping[str, str | None]) -> MachineKey:
    """What two numbers must have in common to be compared: device, driver, PyTorch."""
    return hardware.cpu if hardware.device == "cpu" else hardware.name, hardware.driver, software.get("torch")


def merge(baselines: Iterable[Baseline]) -> dict[tuple[str, str, str], Baseline]:
    """By problem, source and precision; later ones add variants to earlier ones and replace those of the same name.

    Raises:
        UsageError: they are of different machines.
    """
    found: dict[tuple[str, str, str], Baseline] = {}
    first: Baseline | None = None
    for baseline in baselines:
        first = first or baseline
        expect_same_machine(baseline.machine, first.machine, "the baselines")
        key = (baseline.problem, baseline.source_sha256, baseline.precision)
        earlier = found.get(key)
        variants = baseline.variants if earlier is None else earlier.variants | baseline.variants
        found[key] = baseline.model_copy(update={"variants": variants})
    return found


def read_table(path: Path) -> dict[str, Baseline]:
    """The baselines in a file of `kbenv baseline`, by problem.

    Raises:
        UsageError: there is no such file, or it is none, or it holds several of one problem (of other sources).
    """
    try:
        lines = parse_lines(path.read_bytes(), path, Baseline)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; make it with `kbenv baseline`") from error
    by_problem: dict[str, Baseline] = {}
    for baseline in merge(lines).values():
        if baseline.problem in by_problem:
            raise UsageError(f"{path} holds baselines of two sources or precisions of {baseline.problem}: split it")
        by_problem[baseline.problem] = baseline
    return by_problem


def expect_same_machine(found: MachineKey, expected: MachineKey, whose: str) -> None:
    """Raises UsageError when they differ, and says in what."""
    if found != expected:
        names = ("device", "driver", "torch")
        differ = [
            f"{name} {there} against {here}"
            for name, there, here in zip(names, found, expected, strict=True)
            if there != here
        ]
        raise UsageError(
            f"{whose} are of another machine ({'; '.join(differ)}): such numbers are not compared; measure them anew "
            "where the verdicts are made"
        )


def speedup_against(verdict: Verdict, baseline: Baseline, name: VariantName) -> float | None:
    """The speedup of a credited verdict against a variant in the place of its protocol's baseline.

    The verdict's own speedup is paired and has an interval; this one is that, times the ratio of the variant to the
    eager one with the verdict's flags, both measured alone.

    Returns:
        None for a verdict without credit, or where one of the two variants has no latency.

    Raises:
        UsageError: they are of different machines, or another precision.
    """
    if not verdict.credited or verdict.speedup is None or verdict.hardware is None:
        return None
    expect_same_machine(baseline.machine, machine_key(verdict.hardware, verdict.software), "the baselines")
    if baseline.precision != verdict.protocol.precision:
        raise UsageError(f"the baselines are in {baseline.precision}, the verdict in {verdict.protocol.precision}")
    other_ms, own_ms = baseline.latency_ms(name), baseline.latency_ms(_EAGER[verdict.protocol.tf32.reference_timing])
    return None if other_ms is None or own_ms is None else verdict.speedup.value * other_ms / own_ms
