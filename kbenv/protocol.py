"""The rules a verdict is established by: frozen presets, every number of which is copied into the verdict.

`kernelbench` (and `kernelbench-v0`) follow upstream KernelBench, `verified` follows KernelBench-Verified
(arXiv 2607.16241). The judge receives these numbers as data; it holds none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kbenv.errors import UsageError
from kbenv.problems.excluded import EXCLUDED
from kbenv.problems.problem import TOLERANCES, Comparator

Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
Effort = Literal["full", "quick"]
EFFORTS: tuple[Effort, ...] = ("full", "quick")
DEFAULT_EFFORT: Effort = "full"
"""Of the clock: no check depends on it."""
Diagnostic = Literal["kernels", "code", "counters", "access"]
DIAGNOSTICS: tuple[Diagnostic, ...] = ("kernels", "code", "counters", "access")

PROFILE: tuple[Diagnostic, ...] = ("kernels", "code")
"""Of them, those that a profile is made of and that need no tool but what comes with PyTorch and Triton."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # for the same reason as a verdict's, of which it is a part


class TF32(_Frozen):
    """Whether TF32 tensor cores may be used, for matrix products, cuDNN convolutions and cuDNN recurrent layers."""

    matmul: bool
    conv: bool
    rnn: bool


OFF = TF32(matmul=False, conv=False, rnn=False)
ON = TF32(matmul=True, conv=True, rnn=True)
TORCH_DEFAULT = TF32(matmul=False, conv=True, rnn=True)
"""PyTorch's own defaults: off for matrix products, on for cuDNN."""


class TF32Table(_Frozen):
    """The one table of TF32 flags: phase x runner. The submission starts with the baseline's flags in every phase."""

    reference_correctness: TF32
    reference_timing: TF32
    submission: TF32


class HiddenInput(_Frozen):
    """One hidden distribution: every floating tensor of a fresh draw times `factor`."""

    name: str
    factor: float


D1_D4 = (
    HiddenInput(name="D1", factor=1.0),
    HiddenInput(name="D2", factor=3.0),
    HiddenInput(name="D3", factor=0.01),
    HiddenInput(name="D4", factor=-1.0),
)
"""KernelBench-Verified's four distributions (its `hidden_tests/`)."""


class Tolerance(_Frozen):
    """An element passes when |output - reference| <= absolute + relative * |reference| (torch.allclose)."""

    absolute: float
    relative: float
    baseline_factor: float | None = Field(
        default=None,
        description="where the baseline itself (the reference under its timing flags) is outside on the same inputs, "
        "`absolute` becomes this many times the baseline's largest error, per output",
    )
    baseline_ceiling: float | None = Field(default=None, description="but never more than this")
    share: float = Field(default=1.0, description="of an output's elements, those that must pass")
    cap: float | None = Field(default=None, description="no element may be off by more than this")


class Calibration(_Frozen):
    """A tolerance at the output's own scale, from the reference's own error against float64, block by block.

    A block is 32 to 4096 neighbours. An element may be off by `element_factor` times the root mean square of the
    reference's error in its block plus `element_floor` times the larger of its value and the block's root mean square;
    a block's root mean square error by `rms_factor` and `rms_floor` times likewise. The reference's error is the
    largest of: fp32 against float64, the baseline's flags, operands of products cut to TF32 (on a GPU), inputs moved by
    a unit in the last place.
    """

    element_factor: float
    element_floor: float
    rms_factor: float
    rms_floor: float


class Timing(_Frozen):
    """How latency is measured: paired turns on the judge's clock, over re-created pairs of runners."""

    warmup_calls: int = Field(description="calls at each slot before anything is timed")
    cpu_warmup_turns: int = Field(description="on the CPU, turns of each runner before anything is timed, at least")
    timed_calls: int = Field(description="timed calls of each runner, at least")
    runner_pairs: int = Field(description="how often both runners are created anew, at most; blocks of the bootstrap")
    slow_pair_s: float = Field(
        description="a pair that takes longer to build is created `slow_runner_pairs` times only"
    )
    slow_runner_pairs: int
    turns_per_pair: int = Field(description="timed turns of each runner in one pair, at least")
    statistic: Literal["mean", "median"] = Field(description="over the turns on a GPU")
    cpu_statistic: Literal["mean", "median"] = Field(
        description="over the turns on the CPU, where one turn in which the scheduler ran something else decides a mean"
    )
    ratio: Literal["of-centres", "median-of-pairs"] = Field(
        default="of-centres", description="the speedup: ratio of the two statistics, or median over paired turns"
    )
    target_turn_ms: float = Field(description="a turn holds as many calls as fill this time, slots permitting")
    max_slots: int = Field(description="most calls in one turn")
    cold_l2_multiple: float = Field(description="slots span at least this many times the L2 cache, memory permitting")
    single_call_turns: int = Field(description="turns of one call, where a turn holds more: see `single_call_counts`")
    bootstrap_resamples: int = 2000
    confidence: float = 0.95
    pair_spread: float = Field(
        default=0.02,
        description="standard deviation, as a share, of the speedups that pairs of runners of the same code show; one "
        "pair alone cannot show it, and its interval is widened by it",
    )
    cpu_pair_spread: float = Field(default=0.05, description="the same on the CPU")
    enough: float | None = Field(
        default=None,
        description="on a GPU, after two pairs of runners or more: none is added once the speedup's interval reaches "
        "no further than this share to either side; None: there are `runner_pairs` always",
    )


class Limits(_Frozen):
    """What a submission may use before it is stopped."""

    build_s: float = 300.0
    call_s: float = 30.0
    call_factor: float = Field(
        default=50.0, description="a call may take this many times the reference's, if that is longer"
    )
    job_s: float = 900.0
    host_memory_bytes: int = 16 << 30
    scratch_bytes: int = 2 << 30
    file_bytes: int = 1 << 30
    processes: int = 256
    open_files: int = 1024
    output_bytes: int = 64 << 10
    device_memory_bytes: int | None = Field(default=None, description="plan as if the device had only this much")


class Protocol(_Frozen):
    """One named set of rules at one precision.

    Attributes:
        effort: what its clock takes: see `with_effort`.
        drawing: where `get_inputs` draws the standard trials' inputs: "cpu" in upstream's order, or on the device.
            Hidden and timed inputs are drawn on the device under either.
        exact_reference: whether the reference that outputs are compared with runs without TF32.
        excluded: ids of problems that this protocol does not judge.
    """

    name: str
    precision: Precision
    effort: Effort = DEFAULT_EFFORT
    construction_seed: int
    drawing: Literal["cpu", "device"]
    standard_trials: int
    hidden_inputs: tuple[HiddenInput, ...]
    tolerance: Tolerance
    tf32: TF32Table
    timing: Timing
    memory: bool
    limits: Limits = Limits()
    require_custom_kernel: bool
    excluded: tuple[str, ...]
    same_uid: bool = Field(
        default=True,
        description="whether submissions are judged where nothing but limits and a filter keeps them apart "
        "(`isolation.level` same-uid)",
    )
    secret_seeds: bool = Field(default=False, description="all seeds drawn anew for each job; the verdict records them")
    redraw_parameters: bool = Field(
        default=False, description="constant parameters become seeded draws in construction"
    )
    probes: tuple[str, ...] = Field(default=(), description="structured hidden inputs, those that the reference bears")
    perturb_timed: bool = Field(default=False, description="a few elements of every timed input are changed")
    calibration: Calibration | None = Field(
        default=None, description="the tolerance of every check; `tolerance` then binds standard trials and D1-D4 too"
    )
    own_tolerance: bool = Field(
        default=False,
        description="where a problem's set compares by tolerances of its own, they stand in `tolerance`",
    )
    compiled_baseline: bool = Field(
        default=False, description="torch.compile of the reference is timed too, alone; the speedup is against eager"
    )
    diagnostics: tuple[Diagnostic, ...] = Field(
        default=(),
        description="what is also looked at, and decides no status: which kernels ran and the device's rates (always "
        "on a CPU, and under `hardened`); in standard trials machine code by cuobjdump, Nsight Compute's counters, the "
        "first bad access by compute-sanitizer",
    )
    guard_reference: bool = Field(default=False, description="the submission is stopped while the reference is timed")
    custom_share_at_least: float | None = Field(
        default=None,
        description="where a custom kernel is required: of the time of forward, that of custom kernels, if it could be "
        "measured; None: the source's evidence is enough",
    )

    def judging(self, comparator: Comparator) -> Protocol:
        """These rules for a problem whose set compares so."""
        own = comparator.parameters if comparator.kind in ("allclose", "matched") else {}
        if not self.own_tolerance or not own:
            return self
        tolerance = self.tolerance.model_copy(update={name: own[name] for name in TOLERANCES if name in own})
        return self.model_copy(update={"tolerance": tolerance})

    def with_effort(self, effort: Effort) -> Protocol:
        """The same rules at another effort of the clock; one that is "quick" does not become "full" again.

        "quick": one pair of runners and few turns, so a wider interval in less time, for training. Every check of the
        outputs stays, and every timed output is compared.

        Raises:
            UsageError: there is no such effort.
        """
        if effort not in EFFORTS:
            raise UsageError(f"effort must be one of {', '.join(EFFORTS)}; found {effort!r}")
        if effort in ("full", self.effort):
            return self
        quick = {
            "warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 4, "runner_pairs": 1, "slow_runner_pairs": 1,
            "turns_per_pair": 6, "single_call_turns": 4, "bootstrap_resamples": 200, "target_turn_ms": 3.0,
        }  # fmt: skip
        return self.model_copy(update={"effort": effort, "timing": self.timing.model_copy(update=quick)})


def _timing(warmup_calls: int, timed_calls: int) -> Timing:
    return Timing(
        warmup_calls=warmup_calls,
        cpu_warmup_turns=6,
        timed_calls=timed_calls,
        runner_pairs=4,
        slow_pair_s=5.0,
        slow_runner_pairs=3,
        turns_per_pair=5,
        statistic="mean",
        cpu_statistic="median",
        target_turn_ms=8.0,
        max_slots=192,
        cold_l2_multiple=3.0,
        single_call_turns=8,
    )


def _kernelbench(precision: Precision, fp32_tolerance: float, name: str) -> Protocol:
    tolerance = fp32_tolerance if precision == "fp32" else 1e-2
    return Protocol(
        name=name,
        precision=precision,
        construction_seed=42,
        drawing="cpu",
        standard_trials=5,
        hidden_inputs=(),
        tolerance=Tolerance(absolute=tolerance, relative=tolerance),
        tf32=TF32Table(reference_correctness=TORCH_DEFAULT, reference_timing=TORCH_DEFAULT, submission=TORCH_DEFAULT),
        timing=_timing(warmup_calls=3, timed_calls=100),
        memory=False,
        require_custom_kernel=False,
        own_tolerance=True,
        excluded=(),
    )


def _verified(precision: Precision) -> Protocol:
    tolerance = 1e-3 if precision == "fp32" else 1e-2
    return Protocol(
        name="verified",
        precision=precision,
        construction_seed=42,
        drawing="device",
        standard_trials=5,
        hidden_inputs=D1_D4,
        # A TF32 convolution of 3x inputs leaves some elements outside 1e-3 (measured: up to 0.006), so that PyTorch's
        # own baseline would be refused; the ceiling is the tolerance of upstream's v0.
        tolerance=Tolerance(absolute=tolerance, relative=tolerance, baseline_factor=2.0, baseline_ceiling=1e-2),
        tf32=TF32Table(reference_correctness=OFF, reference_timing=ON, submission=ON),
        timing=_timing(warmup_calls=3, timed_calls=10),
        memory=True,
        require_custom_kernel=False,
        excluded=("kernelbench/level2/23", "kernelbench/level2/80", "kernelbench/level2/83"),
    )


def _hardened(precision: Precision) -> Protocol:
    # Fast intrinsics and sums in sequence stay near 1e-5 of the value, half precision begins at 1.2e-4.
    floors = {"fp32": (1.2e-4, 5e-5), "fp16": (4e-3, 1e-3), "bf16": (3.2e-2, 8e-3)}
    element_floor, rms_floor = floors[precision]
    base = _verified(precision)
    timing = base.timing.model_copy(update={"statistic": "median", "ratio": "median-of-pairs", "enough": 0.02})
    return base.model_copy(
        update={
            "name": "hardened",
            "timing": timing,
            "secret_seeds": True,
            "redraw_parameters": True,
            "probes": PROBES,
            "perturb_timed": True,
            "calibration": Calibration(
                element_factor=16.0, element_floor=element_floor, rms_factor=2.5, rms_floor=rms_floor
            ),
            "guard_reference": True,
            "require_custom_kernel": True,
            "custom_share_at_least": CUSTOM_SHARE,
            "excluded": tuple(EXCLUDED),
            "same_uid": False,
        }
    )


CUSTOM_SHARE = 0.01
"""A level-3 model with one fused kernel is honest, and its products hold nearly all of the time: on an H200 Swish and
the gate of core/level3/gated_feed_forward are to take some 0.13 ms of 1.75 ms in one kernel, 7%, and on two cores of a
CPU the epilogue of core/level2/matmul_bias_swish_row_max takes 1.8%. A decoy launched on one element takes 2 us, 0.2%
of a millisecond."""
PROBES = (
    "rows", "columns", "row-means", "column-means", "outliers", "tails", "signs", "gaps", "shifted", "far-above",
    "far-below", "near-one", "near-one-signed", "wide", "large", "narrow", "small", "apart", "zero-rows", "ties",
    "dip", "inner-dip", "ends", "constants",
)  # fmt: skip
"""Of `kbenv.sandbox.judge.probe`."""
_PRESETS: dict[str, Callable[[Precision], Protocol]] = {
    "hardened": _hardened,
    "verified": _verified,
    "kernelbench": lambda precision: _kernelbench(precision, 1e-4, "kernelbench"),
    "kernelbench-v0": lambda precision: _kernelbench(precision, 1e-2, "kernelbench-v0"),
}
PROTOCOLS: tuple[str, ...] = tuple(_PRESETS)
DEFAULT_PROTOCOL = "hardened"


def get_protocol(
    name: str = DEFAULT_PROTOCOL, precision: Precision = "fp32", *, require_custom_kernel: bool | None = None
) -> Protocol:
    """The preset `name` at `precision`; `require_custom_kernel` overrides the preset's own choice when given.

    Raises:
        UsageError: no such preset or precision.
    """
    if name not in _PRESETS:
        raise UsageError(f"protocol must be one of {', '.join(PROTOCOLS)}; found {name!r}")
    if precision not in PRECISIONS:
        raise UsageError(f"precision must be one of {', '.join(PRECISIONS)}; found {precision!r}")
    protocol = _PRESETS[name](precision)
    if require_custom_kernel is not None:
        protocol = protocol.model_copy(update={"require_custom_kernel": require_custom_kernel})
    return protocol
