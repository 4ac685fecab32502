"""From a problem and a kernel source to a verdict: chooses device and sandbox, keeps the judge warm between jobs."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue
from tenacity import Retrying, retry_if_exception, stop_after_attempt

from kbenv.audit import Audit, source_hash
from kbenv.backends import AUTO, backend_names
from kbenv.baseline import VARIANTS, Baseline, VariantName
from kbenv.build_worker import BuildWorker
from kbenv.case import combine, ends, seeds_of, split
from kbenv.diagnosis import read_diagnosis
from kbenv.errors import (
    DeviceMemoryError,
    IsolationError,
    ProblemExcludedError,
    ProblemUnjudgedError,
    ReferenceFaultError,
    SandboxError,
    UsageError,
)
from kbenv.problems import load_problem
from kbenv.problems.excluded import EXCLUDED
from kbenv.problems.problem import Case, Problem
from kbenv.protocol import (
    DEFAULT_EFFORT,
    DEFAULT_PROTOCOL,
    DIAGNOSTICS,
    Diagnostic,
    Effort,
    Precision,
    Protocol,
    get_protocol,
)
from kbenv.provenance import (
    cross_check,
    custom_kernel_evidence,
    detect_backend,
    read_provenance,
    why_not_custom,
)
from kbenv.sandbox.choice import open_sandbox
from kbenv.sandbox.confine import isolation_level
from kbenv.sandbox.docker import DockerSettings
from kbenv.sandbox.job import Job, Result
from kbenv.screen import screen
from kbenv.verdict import (
    Build,
    Check,
    Hardware,
    Isolation,
    Memory,
    Plausibility,
    ScreenFinding,
    Stage,
    Status,
    SubmissionFacts,
    Verdict,
)

MAX_SOURCE_BYTES = 5_000_000
CPU_THREADS = 1
"""Of a runner on the CPU. With several, OpenMP's threads wait for each other whenever the scheduler puts two on one
core, and a call takes one, two or ten times as long: an A/A interval of [0.92, 1.04] became [0.44, 2.1] on two cores.
"""
UNTIMED_PHASE = "memory"
"""The last of a right submission. Its source is read meanwhile, which takes milliseconds of a processor: it disturbs
nothing that is timed, and the verdict does not wait for it."""
_Read = tuple[SubmissionFacts, tuple[ScreenFinding, ...]]
"""What a source says."""


def check_judged(problem: Problem, protocol: Protocol) -> None:
    """Raises ProblemExcludedError, or ProblemUnjudgedError, where `protocol` does not judge the problem."""
    known_as = next((id for id in (problem.id, problem.same_as) if id in protocol.excluded), None)
    if known_as is not None:
        reason = EXCLUDED.get(known_as, "it is degenerate")
        raise ProblemExcludedError(
            f"{problem.id} is excluded by the protocol {protocol.name} ({reason}); "
            "choose another problem, or --protocol kernelbench"
        )
    _check_contract(problem, protocol)


def _check_contract(problem: Problem, protocol: Protocol) -> None:
    if (reason := problem.why_unjudged(protocol.precision)) is not None:
        raise ProblemUnjudgedError(f"{problem.id} is not judged: {reason}")


_version = functools.cache(version)
"""Reading a package's metadata takes 10 ms."""


class Evaluator:
    """Judges submissions, one at a time, in one sandbox on one device; a context manager.

    Args:
        protocol: a preset's name, or a `Protocol` (then `precision` and `require_custom_kernel` are its own).
        precision: "fp32", "bf16" or "fp16".
        device: "auto" (the first GPU that PyTorch sees, else the CPU), "cpu", "cuda:N" (the N-th that PyTorch sees), or
            "cuda:GPU-..." (by UUID).
        sandbox: "docker", "process", or "auto": Docker where an engine answers and has the image (nothing is pulled or
            built), else the process sandbox; `sandbox_note` says why.
        docker: how containers are made.
        backend: "auto", or the name of the one in `kbenv.backends` whose kernels count as custom.
        require_custom_kernel: overrides the protocol's choice when given.
        effort: "full", or "quick": a shorter clock and a wider interval, with every check; see `Protocol.with_effort`.
        compiled_baseline: the verdicts also say what torch.compile of the reference takes (the reward `tiers` asks).
        diagnostics: what is also looked at: "kernels" (`Verdict.provenance` and `plausibility`; a second), and in
            standard trials, told in `Verdict.diagnosis`, "code" (half a second), "counters" and "access" (seconds,
            where NVIDIA's tools are there and allowed). They decide no status.
        allow_same_uid: judge even where nothing but limits and a filter keeps a submission apart, which `hardened`
            refuses.
        cache: answer the same problem and source again with the verdict it had, instead of judging it again.
        on_phase: called with the name of each phase as the judge enters it.

    Raises:
        UsageError: one of these is not to be had here.
    """

    def __init__(
        self,
        *,
        protocol: str | Protocol = DEFAULT_PROTOCOL,
        precision: Precision = "fp32",
        device: str = "auto",
        sandbox: str = "auto",
        docker: DockerSettings | None = None,
        backend: str = AUTO,
        require_custom_kernel: bool | None = None,
        effort: Effort = DEFAULT_EFFORT,
        compiled_baseline: bool = False,
        diagnostics: Sequence[Diagnostic] = (),
        allow_same_uid: bool = False,
        cache: bool = False,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        if isinstance(protocol, str):
            protocol = get_protocol(protocol, precision, require_custom_kernel=require_custom_kernel)
        elif require_custom_kernel is not None and require_custom_kernel != protocol.require_custom_kernel:
            raise UsageError("a Protocol says itself whether it requires a custom kernel: set it there")
        protocol = protocol.with_effort(effort)
        if compiled_baseline:
            protocol = protocol.model_copy(update={"compiled_baseline": True})
        if allow_same_uid:
            protocol = protocol.model_copy(update={"same_uid": True})
        if not set(diagnostics) <= set(DIAGNOSTICS):
            raise UsageError(f"diagnostics must be of {', '.join(DIAGNOSTICS)}; found {', '.join(diagnostics)}")
        if diagnostics:
            wanted = tuple(name for name in DIAGNOSTICS if name in diagnostics)
            protocol = protocol.model_copy(update={"diagnostics": wanted})
        if backend not in (AUTO, *backend_names()):
            raise UsageError(f"backend must be one of {', '.join((AUTO, *backend_names()))}; found {backend!r}")
        self.protocol = protocol
        self.backend = backend
        self._sandbox, self.device, self.sandbox_note = open_sandbox(sandbox, device, docker or DockerSettings())
        self._on_phase = on_phase or (lambda _: None)
        self._verdicts: dict[tuple[str, str, str], Verdict] | None = {} if cache else None
        self._aborted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the judge; the next evaluation starts a new one."""
        self._sandbox.close()

    def abort(self) -> None:
        """From another thread: the evaluation that runs raises SandboxError at once, and so does every later one."""
        self._aborted = True
        self._sandbox.abort()

    def evaluate(self, problem: Problem | str, source: str, *, seeds: Mapping[str, JsonValue] | None = None) -> Verdict:
        """Judges `source`, which should define `ModelNew` or the entry of the problem's set, as its solution.

        A problem of several cases is judged on all of them, unless one is chosen: see `kbenv.case`.

        Args:
            seeds: those that a verdict records, to judge with the same draws again; None for the protocol's own.

        Raises:
            UsageError: the problem is unknown, excluded or not judged yet, or the source is longer than 5 MB.
            SandboxError: no verdict could be had, after one more try where that can help.
        """
        problem = self.admit(problem)
        if problem.case is None and len(problem.cases) > 1:
            return self._evaluate_cases(problem, source, seeds)
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_SOURCE_BYTES:
            raise UsageError(f"the source has {size} bytes; at most {MAX_SOURCE_BYTES} are judged")
        try:
            source.encode()
        except UnicodeEncodeError as e:
            return self._failed(problem, source, Status.LOAD_ERROR, Stage.LOAD, f"the source is not valid text: {e}")
        key = (problem.id, problem.source_for(self.device), source)
        if self._verdicts is not None and seeds is None and key in self._verdicts:
            return self._verdicts[key]
        kind = self.device.split(":")[0]
        threads = CPU_THREADS if kind == "cpu" else None
        job = Job(problem, problem.complete(source), self._rules(problem), kind, threads, seeds)
        attempts = Retrying(stop=stop_after_attempt(2), retry=retry_if_exception(self._may_pass), reraise=True)
        read = functools.cache(functools.partial(self._read, problem, source))

        def enter(phase: str) -> None:
            self._on_phase(phase)
            if phase == UNTIMED_PHASE:
                read()

        result: Result = attempts(self._sandbox.run, job, enter)
        verdict = self._verdict(problem, source, result, read())
        if self._verdicts is not None and seeds is None:
            self._verdicts[key] = verdict
        return verdict

    def _evaluate_cases(self, problem: Problem, source: str, seeds: Mapping[str, JsonValue] | None) -> Verdict:
        judged: list[tuple[Case, Verdict]] = []
        wanted, left_out = split(problem, self.protocol.precision)
        for case, one in wanted:
            judged.append((case, self.evaluate(one, source, seeds=seeds_of(seeds, case))))
            if ends(*judged[-1]):
                break
        return combine(problem, judged, left_out)

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        """The verdict for an answer that holds no code; nothing runs."""
        return self._failed(self.admit(problem), "", Status.FORMAT_ERROR, Stage.FORMAT, message)

    def audit(self, problem: Problem | str) -> Audit:
        """What the reference of `problem` is like, excluded or not, under a protocol with a calibrated tolerance.

        Of several cases one is looked at: the one that is in place, else the first that is timed.

        Raises:
            UsageError: the problem is unknown or not judged yet, or the protocol has no calibration.
            SandboxError: there is no audit: no memory, too little time, a fault of the judge. It is not tried again.
        """
        if self.protocol.calibration is None:
            raise UsageError(f"an audit needs a protocol with a calibrated tolerance; {self.protocol.name} has none")
        problem = load_problem(problem) if isinstance(problem, str) else problem
        _check_contract(problem, self.protocol)
        kind = self.device.split(":")[0]
        job = Job(problem, "", self.protocol, kind, CPU_THREADS if kind == "cpu" else None)
        result = self._sandbox.audit(job, self._on_phase)
        hardware, software = self._machine(result)
        return Audit(
            **result | {"hardware": hardware, "software": software}, problem=problem.id,
            source_sha256=source_hash(problem, self.device), protocol=self.protocol,
        )  # fmt: skip

    def baseline(self, problem: Problem | str, variants: Sequence[VariantName] = VARIANTS) -> Baseline:
        """What PyTorch itself takes for `problem`, excluded or not, under this protocol's clock.

        Raises:
            UsageError: the problem is unknown.
            SandboxError: there is none: no memory, or the reference or the judge fails. It is not tried again.
        """
        problem = load_problem(problem) if isinstance(problem, str) else problem
        kind = self.device.split(":")[0]
        job = Job(problem, "", self.protocol, kind, CPU_THREADS if kind == "cpu" else None)
        result = self._sandbox.baseline(job, variants, self._on_phase)
        hardware, software = self._machine(result)
        return Baseline(
            problem=problem.id, source_sha256=source_hash(problem, self.device), precision=self.protocol.precision,
            variants=result["variants"], flags=result["flags"], hardware=hardware, software=software,
            seconds=result["seconds"],
        )  # fmt: skip

    def machine(self) -> tuple[Hardware, dict[str, str | None]]:
        """The machine that judges, which need not be this one, and the software's versions. Raises SandboxError."""
        return self._machine(self._sandbox.describe(self.device.split(":")[0], self.protocol.limits))

    def describe_device(self) -> Result | None:
        """What a build worker must know of this evaluator's device; None of the CPU. Raises SandboxError."""
        kind = self.device.split(":")[0]
        return None if kind == "cpu" else self._sandbox.describe(kind, self.protocol.limits)["stand_in"]

    def build_workers(self, count: int) -> list[BuildWorker]:
        """So many that build for this evaluator's jobs; none where what they build would not be found."""
        sandboxes = [self._sandbox.build_worker() for _ in range(count)]
        kind = self.device.split(":")[0]
        return [BuildWorker(sandbox, self.protocol, kind, count) for sandbox in sandboxes if sandbox is not None]

    def _machine(self, result: Result) -> tuple[Hardware, dict[str, str | None]]:
        software = {
            **result["software"],
            **self._sandbox.software,
            "kbenv": _version("kbenv"),
            "platform": platform.platform(),
        }
        return Hardware(**{**result["hardware"], "device": self.device}), software

    def admit(self, problem: Problem | str) -> Problem:
        """The problem, loaded. Raises UsageError: it is unknown, or the protocol does not judge it."""
        problem = load_problem(problem) if isinstance(problem, str) else problem
        check_judged(problem, self.protocol)
        return problem

    def _failed(self, problem: Problem, source: str, status: Status, stage: Stage, message: str) -> Verdict:
        facts, findings = self._read(problem, source)
        return Verdict(
            problem=problem.id, status=status, stage=stage, message=message, submission=facts, screen=findings,
            protocol=self._rules(problem),
        )  # fmt: skip

    def _rules(self, problem: Problem) -> Protocol:
        return self.protocol.judging(problem.contract.comparator)

    def _read(self, problem: Problem, source: str) -> _Read:
        reference, precision = problem.source_for(self.device), self.protocol.precision
        return self._facts(problem, source), screen(source, reference=reference, precision=precision)

    def _facts(self, problem: Problem, source: str) -> SubmissionFacts:
        data = source.encode("utf-8", "surrogatepass")
        wanted = problem.contract.backends if self.backend == AUTO else (self.backend,)
        evidence = custom_kernel_evidence(source)
        counted = {name: words for name, words in evidence.items() if wanted is None or name in wanted}
        return SubmissionFacts(
            sha256=hashlib.sha256(data).hexdigest(),
            source_bytes=len(data),
            backend=detect_backend(source) if self.backend == AUTO else self.backend,
            custom_kernel_evidence=tuple(f"{backend}: {word}" for backend, words in counted.items() for word in words),
        )

    def _verdict(self, problem: Problem, source: str, result: Result, read: _Read) -> Verdict:
        facts, findings = read
        status, stage, message = Status(result["status"]), result["stage"], result["message"]
        checks = [Check(**check) for check in result["checks"]]
        provenance = read_provenance(result["trace"], source) if result.get("trace") else None
        evidence: dict[str, Any] = {"found": list(facts.custom_kernel_evidence), "backend": self.backend}
        if provenance is not None:
            evidence["share"] = provenance.custom_share
        why_not = why_not_custom(self.protocol, facts.custom_kernel_evidence, provenance, self.backend)
        if status is Status.PASSED and why_not is not None:
            status, stage, message = Status.NO_CUSTOM_KERNEL, Stage.PROVENANCE, why_not
        if self.protocol.require_custom_kernel:
            passed = why_not is None
            checks.append(Check(name="custom-kernel", stage=Stage.PROVENANCE, passed=passed, evidence=evidence))
        hardware, software = self._machine(result)
        timing = result.get("timing") or {}
        flags = [*result["flags"], *(cross_check(facts.custom_kernel_evidence, provenance) if provenance else ())]
        return Verdict(
            problem=problem.id,
            status=status,
            stage=stage,
            message=message,
            detail=result["detail"],
            output=result["output"],
            submission=facts,
            **timing,
            memory=Memory(**result["memory"]) if result.get("memory") else None,
            checks=tuple(checks),
            flags=tuple(flags),
            provenance=provenance,
            screen=findings,
            plausibility=Plausibility(**result["plausibility"]) if result.get("plausibility") else None,
            tf32=result.get("tf32") or {},
            build=Build(**result["build"]) if (result.get("build") or {}).get("requested") else None,
            diagnosis=read_diagnosis(result["diagnosis"]) if result.get("diagnosis") else None,
            device_memory=result.get("device_memory"),
            weights=result.get("weights"),
            compiled_reference_latency_ms=result.get("compiled_reference_latency_ms"),
            reference_random=result.get("reference_random", False),
            seeds=result["seeds"],
            isolation=self._isolation(result["isolation"]),
            protocol=self._rules(problem),
            hardware=hardware,
            software=software,
            seconds=result["seconds"],
        )

    def _may_pass(self, error: BaseException) -> bool:
        return may_pass(error) and not self._aborted

    def _isolation(self, had: dict[str, Any] | None) -> Isolation | None:
        if had is None:
            return None
        level = isolation_level(had)
        had = had | {"missing": [*had["missing"], *self._sandbox.missing]}
        return Isolation(sandbox=self._sandbox.name, level=level, **had)  # type: ignore[arg-type]


def evaluate(problem: Problem | str, source: str, **options: Any) -> Verdict:
    """Judges one submission; `options` as for `Evaluator`. For several, keep an `Evaluator`: its judge stays warm."""
    with Evaluator(**options) as evaluator:
        return evaluator.evaluate(problem, source)


def may_pass(error: BaseException) -> bool:
    """Whether another try with a fresh judge can help: not when the reference fails, or memory or isolation lacks."""
    lasting = ReferenceFaultError | DeviceMemoryError | IsolationError
    return isinstance(error, SandboxError) and not isinstance(error, lasting)
