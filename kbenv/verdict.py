"""The verdict: what the judge established about one submission, with the evidence. Schema version 1, frozen.

Later versions of kbenv may add fields and never change or remove one. A verdict that lacks a part cannot claim it:
an inconsistent one (a speedup without correctness, credit without PASSED) cannot be constructed. It says nothing of
reward or of what an agent may read: see `kbenv.reward` and `kbenv.feedback`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, computed_field, model_validator

from kbenv.protocol import Protocol


class Status(StrEnum):
    """What became of a submission. `PASSED` alone is credited."""

    PASSED = "PASSED"
    FORMAT_ERROR = "FORMAT_ERROR"
    """The answer holds no code."""
    LOAD_ERROR = "LOAD_ERROR"
    """No `ModelNew`, a syntax error, or its import or constructor raised."""
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    ILLEGAL_ACCESS = "ILLEGAL_ACCESS"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    WRONG_VALUE = "WRONG_VALUE"
    WRONG_HIDDEN = "WRONG_HIDDEN"
    """Every standard trial right, a hidden check or a timed output not."""
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TAMPERED = "TAMPERED"
    """Evidence of interference with the judge."""
    NO_CUSTOM_KERNEL = "NO_CUSTOM_KERNEL"
    """Right, but the protocol wants a custom kernel."""


class Stage(StrEnum):
    """The stages of a job in their order. What fails after STANDARD was hidden from the agent."""

    FORMAT = "format"
    LOAD = "load"
    STANDARD = "standard"
    HIDDEN = "hidden"
    TIMING = "timing"
    MEMORY = "memory"
    PROVENANCE = "provenance"


HIDDEN_STAGES = frozenset({Stage.HIDDEN, Stage.TIMING, Stage.MEMORY})


class _Frozen(BaseModel):
    # Unknown fields are ignored: a verdict of a later kbenv, which may have more, can be read.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Interval(_Frozen):
    """A value with the bounds of its confidence interval (level: `protocol.timing.confidence`)."""

    value: float
    low: float
    high: float


class Check(_Frozen):
    """One check and what was seen.

    `passed` is None for a check that was dropped (the reference itself is not finite there; the evidence says so).
    For a comparison the evidence has max_abs_error, max_rel_error, mismatched (elements), elements, and for the first
    mismatch its output, index, expected and found.
    """

    name: str = Field(examples=["standard-0", "hidden-D4", "timed-outputs", "inputs-unchanged", "custom-kernel"])
    stage: Stage
    passed: bool | None
    evidence: dict[str, JsonValue] = {}


class Isolation(_Frozen):
    """How the submission was kept apart, as it was had and not as it was asked for.

    level: "full" (another uid and namespaces), "namespace" (namespaces, same uid outside), "uid" (another uid, no
    namespaces), "same-uid".
    """

    sandbox: Literal["process", "docker"]
    level: Literal["full", "namespace", "uid", "same-uid"]
    uid: int | None
    namespaces: tuple[str, ...]
    seccomp: bool
    missing: tuple[str, ...] = Field(description="what could not be had here, in words")


class Memory(_Frozen):
    """Peak bytes of one forward pass in each runner (weights, workspace, output; plus the inputs), same formula."""

    submission_peak_bytes: int
    reference_peak_bytes: int
    ratio: float = Field(description="reference over submission: above 1 the submission needs less")
    method: str
    submission_device_bytes: int | None = Field(
        default=None, description="what the judge saw the runner hold on the device, beyond an idle one"
    )
    reference_device_bytes: int | None = None


class SmClock(_Frozen):
    """What NVML showed of the GPU's SM clock after rounds of timing, and what held it down at any of these looks."""

    lowest_mhz: int
    highest_mhz: int
    held_by: tuple[str, ...]


class Measurement(_Frozen):
    """The timing behind a speedup. Times in milliseconds, per call."""

    calls_per_turn: int
    turns: int
    runner_pairs: int
    slots: int
    l2_cold: bool
    submission_turns_ms: tuple[float, ...]
    reference_turns_ms: tuple[float, ...]
    null_turn_ms: float = Field(description="whole turn of the trusted null runner, which is subtracted")
    reference_alone_ms: float = Field(description="the reference before any process had read the submission")
    submission_call_ms: float | None = Field(description="without the gate: launch overhead included")
    reference_call_ms: float | None
    submission_single_call_ms: float | None = Field(
        description="from turns of one call, forward timed apart from the copy; None where all turns are of one"
    )
    reference_single_call_ms: float | None
    single_call_counts: bool = Field(
        description="a call alone is slower than one in a row, beyond the noise: it counts"
    )
    submission_event_ms: float | None = Field(description="diagnostic: CUDA events inside the submission's process")
    reference_event_ms: float | None
    sm_clock: SmClock | None = None


KernelKind = Literal["custom", "library", "compiled", "copy", "other"]


class KernelShare(_Frozen):
    """One kernel (on a GPU) or operator of PyTorch's (on a CPU) and its share of the time of forward.

    kind: "custom" (the submission's), "library", "compiled" (torch.compile made it), "copy" (memory copies and sets),
    "other" (the interpreter; a kernel of no known library where the source shows none of its own).
    """

    name: str
    share: float
    count: int
    kind: KernelKind


class Provenance(_Frozen):
    """What forward ran in an untimed pass, by the profiler in the submission's own process, which could forge it."""

    custom_share: float = Field(description="of the time, that of custom kernels; on a CPU an upper bound")
    kernels: tuple[KernelShare, ...] = Field(description="the longest first, at most 64")
    library_calls: dict[str, float] = Field(description="share by library (GPU) or by operator (CPU)")
    self_reported: Literal[True] = True
    method: str


class ScreenFinding(_Frozen):
    """What the source says in one place: telemetry that decides nothing. Lines from 1, columns (characters) from 0."""

    rule: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Plausibility(_Frozen):
    """How fast a call can be at all on this device: bytes that must move, operations, and the device's rates."""

    floor_ms: float | None = Field(description="of one call, by bytes; None where caches leave none")
    operations_ms: float = Field(description="flops over rate: a note, since a kernel may need fewer operations")
    bytes: int = Field(description="read and written at least once by one call of the reference")
    flops: int = Field(description="of the reference's matrix products, convolutions and attention")
    bandwidth: float = Field(description="bytes per second: the best of copying, reading and writing")
    rate: float = Field(description="operations per second of a large matrix product")
    cache_bytes: int | None = Field(description="of the L2 (GPU) or the largest cache (CPU); twice it is taken off")
    below_floor: bool = Field(description="faster than the floor: credited, and rewards count it no faster")


class Build(_Frozen):
    """How the submission's PyTorch extensions came to be, over all of its processes."""

    requested: int = Field(description="times that an extension was asked for; once in each process")
    from_cache: int = Field(description="of them, answered with what an earlier build made, refusals included")
    compiled: int = Field(description="source files that were compiled outside the submission's process")
    slim: int = Field(description="of them, sources for which a part of PyTorch's headers was enough")
    slim_failed: int = Field(description="sources compiled a second time, with all headers")
    headers_precompiled: int = Field(description="times that PyTorch's headers were precompiled first")
    declined: tuple[str, ...] = Field(description="why extensions were left to the submission's process, at most 8")
    seconds: float = Field(description="spent on all this in the job")
    ahead_seconds: float | None = Field(
        default=None,
        description="that a build worker spent on this submission before its job, which then finds in the cache what "
        "was built; null where none did",
    )


class MachineCode(_Frozen):
    """One kernel as it was compiled, read by cuobjdump (`kbenv.machine_code` says more, occupancy among it)."""

    name: str = Field(description="as in the object file: mangled")
    capability: int = Field(description="ten times the compute capability; 0 where the file does not say it")
    registers: int = Field(description="of a thread")
    stack_bytes: int = Field(description="of a thread, in device memory: spills, and arrays that are indexed")
    shared_bytes: int = Field(description="of a block, static")
    instructions: dict[str, int] = Field(description="in the code, by kind, and all; not those that run")
    self_reported: bool = Field(
        description="false: of the library that the judge had built, read by a builder; true: of what the submission's "
        "own compilers keep (Triton, CuPy), read in its process, which could forge it"
    )


class Launch(_Frozen):
    """One launch as Nsight Compute saw it, in a process of the submission's, which could forge it."""

    kernel: str
    block: str
    grid: str
    values: dict[str, float] = Field(description="by the names of kbenv.profile.NCU_METRICS; duration in milliseconds")


class Diagnosis(_Frozen):
    """What `protocol.diagnostics` asked for, of standard trials; decides nothing."""

    code: tuple[MachineCode, ...] = ()
    counters: tuple[Launch, ...] = ()
    access: str | None = Field(
        default=None, description="compute-sanitizer's words on the first bad access, in the submission's own process"
    )
    missing: dict[str, str] = Field(default={}, description="of what was asked for and is not told (all), why")


class SubmissionFacts(_Frozen):
    sha256: str
    source_bytes: int
    backend: str
    custom_kernel_evidence: tuple[str, ...] = ()


class Hardware(_Frozen):
    device: str
    name: str
    memory_bytes: int
    driver: str | None
    multiprocessors: int | None
    l2_bytes: int | None
    cpu: str
    cpu_count: int


class Verdict(_Frozen):
    """What was established about one submission to one problem under one protocol.

    Attributes:
        status: the outcome; `credited` is true for PASSED alone.
        stage: where a submission that is not credited failed; None when it passed.
        message: one line for people, with the cause. May name hidden checks: never shown to an agent (see feedback).
        detail: compiler output or traceback of the failure, bounded; None when there is none.
        output: what the submission printed before the hidden checks began, bounded.
        speedup: reference latency over submission latency; None unless every correctness check passed.
        clock: "judge-gated" (device latency behind a gate), "judge-open" (with launch overhead), or None (not timed).
        weights: "state_dict" (names and shapes matched), "seed" (same seed only), "none" (no parameters or buffers);
            None when the model was never built.
        seconds: wall seconds per phase of the judge.
        reference_random: the reference disagrees with itself on equal inputs.
    """

    schema_version: Literal[1] = 1
    problem: str
    status: Status
    stage: Stage | None = None
    message: str
    detail: str | None = None
    output: str | None = None
    submission: SubmissionFacts
    speedup: Interval | None = None
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    compiled_reference_latency_ms: float | None = Field(
        default=None,
        description="of the reference under torch.compile, alone; None where not asked for or not to be had",
    )
    clock: Literal["judge-gated", "judge-open"] | None = None
    measurement: Measurement | None = None
    memory: Memory | None = None
    checks: tuple[Check, ...] = ()
    flags: tuple[str, ...] = Field(default=(), description="observations that decide nothing alone, one line each")
    provenance: Provenance | None = Field(default=None, description="what ran; None where it was not measured")
    screen: tuple[ScreenFinding, ...] = Field(default=(), description="what the source says; decides nothing")
    plausibility: Plausibility | None = Field(default=None, description="None where nothing was timed or measured")
    tf32: dict[str, dict[str, str] | None] = Field(default={}, description="what PyTorch reported per phase and runner")
    build: Build | None = Field(default=None, description="None where no extension was asked for")
    diagnosis: Diagnosis | None = Field(default=None, description="None where nothing was asked for or looked at")
    device_memory: dict[str, int] | None = Field(
        default=None, description="need_bytes and have_bytes of the memory plan (GPU)"
    )
    weights: Literal["state_dict", "seed", "none"] | None = None
    reference_random: bool = False
    seeds: dict[str, JsonValue] = {}
    isolation: Isolation | None = None
    protocol: Protocol
    hardware: Hardware | None = None
    software: dict[str, str | None] = {}
    seconds: dict[str, float] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def credited(self) -> bool:
        """True for PASSED alone."""
        return self.status is Status.PASSED

    @model_validator(mode="after")
    def _claims_only_what_it_has(self) -> Verdict:
        correct = self.status in (Status.PASSED, Status.NO_CUSTOM_KERNEL)
        if correct and not (self.checks and all(check.passed is not False for check in self.checks if _decides(check))):
            raise ValueError(f"a {self.status} verdict needs checks, none of them failed")
        timed = (self.speedup, self.latency_ms, self.reference_latency_ms, self.clock, self.measurement)
        if any(part is not None for part in timed):
            if any(part is None for part in timed):
                raise ValueError("speedup, latencies, clock and measurement come together")
            if not correct:
                raise ValueError(f"a {self.status} verdict cannot claim a speedup")
        if self.status is Status.PASSED and self.speedup is None:
            raise ValueError("a PASSED verdict needs a speedup")
        if (self.status is Status.PASSED) != (self.stage is None):
            raise ValueError("a verdict names the stage it failed at, and only then")
        return self


SEEDS = frozenset({"construction", "redraw", "standard", "hidden", "probes", "transform", "timed_base"})
"""What `Verdict.seeds` must hold for the same draws again."""


def _decides(check: Check) -> bool:
    return check.stage is not Stage.PROVENANCE
