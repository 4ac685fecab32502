"""The evaluator: what it refuses, what it retries, and how it reads what the judge established."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import pytest

from kbenv.errors import (
    DeviceMemoryError,
    IsolationError,
    ProblemExcludedError,
    ReferenceFaultError,
    SandboxError,
    UsageError,
)
from kbenv.evaluator import CPU_THREADS, MAX_SOURCE_BYTES, Evaluator, evaluate
from kbenv.protocol import get_protocol
from kbenv.sandbox.choice import choose_device, choose_engine_device
from kbenv.sandbox.engine import EngineFacts
from kbenv.sandbox.job import Job, Result
from kbenv.verdict import Stage, Status
from tests.fakes import SUBMISSION_SOURCE, make_plausibility, make_problem, make_verdict

PROBLEM = make_problem()
TRITON_SOURCE = "import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n" + SUBMISSION_SOURCE


class ScriptedSandbox:
    """Returns the given results (or raises the given errors) in order; the last one again and again."""

    name = "process"
    software: ClassVar[dict[str, str]] = {"image": "an image"}
    missing = ("swap limit: not here",)

    def __init__(self, *outcomes: Result | Exception) -> None:
        self.outcomes = outcomes
        self.jobs: list[Job] = []
        self.closed = 0
        self.aborted = False

    def run(self, job: Job, on_phase: Callable[[str], None]) -> Result:
        self.jobs.append(job)
        on_phase("standard")
        outcome = self.outcomes[min(len(self.jobs), len(self.outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.closed += 1

    def abort(self) -> None:
        self.aborted = True


def make_result(status: Status = Status.PASSED, **overrides: Any) -> Result:
    """What a judge sends for `status`."""
    verdict = make_verdict(status).model_dump(mode="json")
    isolation = {"uid": 60101, "namespaces": ["mount", "network", "pid"], "seccomp": True, "missing": []}
    hardware = {"device": "cpu", "name": "x86_64", "memory_bytes": 1, "multiprocessors": None, "l2_bytes": None}
    hardware |= {"driver": None, "cpu": "A CPU", "cpu_count": 2}
    timing = ("speedup", "latency_ms", "reference_latency_ms", "clock", "measurement")
    result: Result = {name: verdict[name] for name in ("status", "stage", "message", "detail", "output", "memory")}
    result |= {
        "checks": [check for check in verdict["checks"] if check["stage"] != "provenance"],
        "timing": {name: verdict[name] for name in timing} if verdict["speedup"] else None,
        "flags": ["a flag"], "seeds": {"construction": 42}, "seconds": {"standard": 0.5}, "weights": "seed",
        "isolation": isolation, "hardware": hardware, "software": {"torch": "2.9.0", "cuda": None},
    }  # fmt: skip
    return result | overrides


def make_evaluator(*outcomes: Result | Exception, **options: Any) -> tuple[Evaluator, ScriptedSandbox]:
    """By `verified`, which asks for no kernel: the submission of these tests holds none."""
    evaluator = Evaluator(**{"device": "cpu", "protocol": "verified", **options})
    sandbox = ScriptedSandbox(*outcomes)
    evaluator._sandbox = sandbox
    return evaluator, sandbox


# -- what it refuses, before anything runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "strict"}, "protocol must be one of .* found 'strict'"),
        ({"precision": "fp64"}, "precision must be one of .* found 'fp64'"),
        ({"backend": "cutlass"}, "backend must be one of .* found 'cutlass'"),
        ({"sandbox": "chroot"}, "sandbox must be one of .* found 'chroot'"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda:N; found 'tpu'"),
    ],
)
def test_an_option_that_is_not_to_be_had_is_a_usage_error(options, words):
    with pytest.raises(UsageError, match=words):
        Evaluator(**options)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", "cuda:0:1", "cpu:0", "auto:1", "", "CPU", "cuda:1.0"])
def test_a_device_of_no_known_form_is_a_usage_error(device):
    with pytest.raises(UsageError, match="device must be auto, cpu or cuda:N"):
        choose_device(device)


def test_docker_is_not_replaced_by_another_sandbox_when_it_was_asked_for(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(UsageError, match=r"no Docker engine answers at unix:///nowhere/docker.sock .* DOCKER_HOST"):
        Evaluator(sandbox="docker", device="cpu")
    evaluator = Evaluator(sandbox="auto", device="cpu")
    assert (evaluator.sandbox_note or "").startswith("the process sandbox is used: no Docker engine answers")


def make_facts(**changes: Any) -> EngineFacts:
    facts: dict[str, Any] = {field.name: True for field in fields(EngineFacts)}
    return EngineFacts(**(facts | {"gpu_access": (), "is_local": True} | changes))


def test_a_device_of_the_engine_need_not_be_seen_here(monkeypatch):
    use_gpus(monkeypatch, [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert choose_engine_device("auto", make_facts()) == ("cpu", None)
    with pytest.raises(UsageError, match="cuda:1: the engine gives containers no GPU"):
        choose_engine_device("cuda:1", make_facts())
    there = make_facts(gpu_access=("nvidia",), is_local=False)
    assert choose_engine_device("auto", there) == ("cuda:0", "0")
    assert choose_engine_device("cuda:3", there) == ("cuda:3", "3")
    assert choose_engine_device("cpu", there) == ("cpu", None)


def test_a_local_engine_gives_the_gpus_that_the_environment_names(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    here = make_facts(gpu_access=("nvidia",))
    assert choose_engine_device("cuda:1", here) == ("cuda:1", "GPU-a")
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES names 2"):
        choose_engine_device("cuda:2", here)


def use_gpus(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.setattr("kbenv.sandbox.choice._visible_gpus", lambda: names)


def test_a_gpu_that_is_not_there_is_a_usage_error_that_counts_those_that_are(monkeypatch):
    use_gpus(monkeypatch, [])
    with pytest.raises(UsageError, match=r"cuda:7: this machine has 0 GPUs .* use --device cpu or auto"):
        choose_device("cuda:7")
    use_gpus(monkeypatch, ["0"])
    with pytest.raises(UsageError, match="has 1 GPU that"):
        choose_device("cuda:1")


def test_the_device_is_the_first_gpu_where_there_is_one(monkeypatch):
    use_gpus(monkeypatch, [])
    assert choose_device("auto") == ("cpu", None)
    use_gpus(monkeypatch, ["3", "5"])
    assert choose_device("auto") == choose_device("cuda") == ("cuda:0", "3")
    assert choose_device("cuda:1") == ("cuda:1", "5")
    assert choose_device("cpu") == ("cpu", None)


def test_a_problem_that_the_protocol_excludes_is_refused_and_says_why():
    problem = make_problem(id="kernelbench/level2/80")
    evaluator, sandbox = make_evaluator(make_result())
    with pytest.raises(ProblemExcludedError, match="level2/80 is excluded by the protocol verified"):
        evaluator.evaluate(problem, SUBMISSION_SOURCE)
    with pytest.raises(ProblemExcludedError):
        evaluator.format_error(problem, "no code")
    assert sandbox.jobs == []
    upstream, _ = make_evaluator(make_result(), protocol="kernelbench")
    assert upstream.evaluate(problem, SUBMISSION_SOURCE).problem == "kernelbench/level2/80"


def test_an_unknown_problem_is_a_usage_error():
    evaluator, sandbox = make_evaluator(make_result())
    with pytest.raises(UsageError, match="core/level1/rely"):
        evaluator.evaluate("core/level1/rely", SUBMISSION_SOURCE)
    assert sandbox.jobs == []


def test_a_source_of_more_than_five_megabytes_is_refused():
    evaluator, sandbox = make_evaluator(make_result())
    room = MAX_SOURCE_BYTES - len(SUBMISSION_SOURCE.encode()) - 2
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE + "\n#" + "x" * room).credited
    with pytest.raises(UsageError, match=rf"the source has {MAX_SOURCE_BYTES + 1} bytes; at most {MAX_SOURCE_BYTES}"):
        evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE + "\n#" + "x" * (room + 1))
    assert len(sandbox.jobs) == 1


def test_the_limit_is_of_bytes_and_not_of_characters():
    evaluator, _ = make_evaluator(make_result())
    with pytest.raises(UsageError):
        evaluator.evaluate(PROBLEM, "#" + "ü" * (MAX_SOURCE_BYTES // 2))


def test_a_source_that_is_no_text_is_the_submissions_fault_and_runs_nothing():
    evaluator, sandbox = make_evaluator(make_result())
    verdict = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE + "s = '\ud800'\n")
    assert (verdict.status, verdict.stage) == (Status.LOAD_ERROR, Stage.LOAD)
    assert "not valid text" in verdict.message
    assert verdict.isolation is None
    assert sandbox.jobs == []
    verdict.model_dump_json()


# -- what it asks of the sandbox --------------------------------------------------------------------------------------


def test_a_job_carries_the_problem_the_source_and_the_rules():
    phases: list[str] = []
    evaluator, sandbox = make_evaluator(make_result(), protocol="kernelbench", precision="bf16", on_phase=phases.append)
    evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    (job,) = sandbox.jobs
    assert (job.problem, job.source, job.device) == (PROBLEM, SUBMISSION_SOURCE, "cpu")
    assert job.protocol == get_protocol("kernelbench", "bf16")
    assert job.threads == CPU_THREADS
    assert phases == ["standard"]


def test_a_fault_of_the_sandbox_is_retried_once():
    evaluator, sandbox = make_evaluator(SandboxError("lost"), make_result())
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).credited
    assert len(sandbox.jobs) == 2


def test_an_abort_is_no_fault_to_be_retried():
    evaluator, sandbox = make_evaluator(SandboxError("told to stop"), make_result())
    evaluator.abort()
    assert sandbox.aborted
    with pytest.raises(SandboxError, match="told to stop"):
        evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert len(sandbox.jobs) == 1


def test_a_compiled_baseline_is_a_rule_of_the_protocol():
    evaluator, sandbox = make_evaluator(make_result(compiled_reference_latency_ms=1.5), compiled_baseline=True)
    verdict = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert sandbox.jobs[0].protocol.compiled_baseline
    assert verdict.compiled_reference_latency_ms == 1.5


def test_a_second_fault_is_raised_as_it_is():
    evaluator, sandbox = make_evaluator(SandboxError("lost"), SandboxError("lost again"), make_result())
    with pytest.raises(SandboxError, match="lost again"):
        evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert len(sandbox.jobs) == 2


@pytest.mark.parametrize(
    "fault",
    [ReferenceFaultError("it raises"), DeviceMemoryError("need 3, have 2"), IsolationError("no"), KeyError("x")],
)
def test_a_fault_that_would_only_come_again_is_not_retried(fault):
    evaluator, sandbox = make_evaluator(fault, make_result())
    with pytest.raises(type(fault)):
        evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert len(sandbox.jobs) == 1


def test_a_submissions_fault_is_no_fault_of_the_sandbox():
    evaluator, sandbox = make_evaluator(make_result(Status.TIMEOUT))
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).status is Status.TIMEOUT
    assert len(sandbox.jobs) == 1


def test_leaving_the_context_ends_the_judge():
    evaluator, sandbox = make_evaluator(make_result())
    with evaluator:
        assert sandbox.closed == 0
    assert sandbox.closed == 1


# -- how it reads the result ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uid", "namespaces", "level"),
    [
        (60101, ["mount", "ipc", "uts", "network", "pid"], "full"),
        (60101, ["pid", "network", "mount"], "full"),
        (60101, ["mount", "pid"], "uid"),
        (60101, [], "uid"),
        (None, ["user", "mount", "network", "pid"], "namespace"),
        (None, ["network"], "same-uid"),
        (None, [], "same-uid"),
    ],
)
def test_the_level_of_isolation_is_what_was_had(uid, namespaces, level):
    had = {"uid": uid, "namespaces": namespaces, "seccomp": False, "missing": ["a seccomp filter"]}
    evaluator, _ = make_evaluator(make_result(isolation=had))
    isolation = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).isolation
    assert isolation is not None
    assert (isolation.level, isolation.sandbox) == (level, "process")
    assert isolation.missing == ("a seccomp filter", *ScriptedSandbox.missing)


def test_a_submission_that_never_ran_had_no_isolation():
    evaluator, _ = make_evaluator(make_result(Status.LOAD_ERROR, isolation=None))
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).isolation is None


def test_the_verdict_holds_what_the_judge_established():
    evaluator, _ = make_evaluator(make_result())
    verdict = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert (verdict.status, verdict.problem, verdict.flags) == (Status.PASSED, "core/level1/relu", ("a flag",))
    assert verdict.speedup == make_verdict().speedup
    assert verdict.protocol == get_protocol("verified")
    assert verdict.hardware is not None
    assert verdict.hardware.device == "cpu"
    assert {"kbenv", "platform", "torch"} <= verdict.software.keys()
    assert verdict.submission.backend == "torch"
    assert verdict.submission.source_bytes == len(SUBMISSION_SOURCE)


def test_a_right_source_without_a_kernel_is_credited_only_where_none_is_required():
    lenient, _ = make_evaluator(make_result())
    strict, _ = make_evaluator(make_result(), require_custom_kernel=True)
    assert lenient.evaluate(PROBLEM, SUBMISSION_SOURCE).credited
    verdict = strict.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert (verdict.status, verdict.stage) == (Status.NO_CUSTOM_KERNEL, Stage.PROVENANCE)
    assert verdict.checks[-1].name == "custom-kernel"
    assert verdict.checks[-1].passed is False
    assert strict.evaluate(PROBLEM, TRITON_SOURCE).credited


def test_only_the_chosen_backends_kernels_count():
    evaluator, _ = make_evaluator(make_result(), require_custom_kernel=True, backend="cuda")
    verdict = evaluator.evaluate(PROBLEM, TRITON_SOURCE)
    assert verdict.status is Status.NO_CUSTOM_KERNEL
    assert "cuda kernel" in verdict.message
    assert verdict.submission.custom_kernel_evidence == ()


TRACE = {"kernels": [["kernel", 0.01, 3], ["nvjet_tss_128x64", 0.99, 3]], "outside": None, "method": "device time"}


def test_a_kernel_that_holds_too_little_of_the_time_is_no_custom_kernel_where_a_share_is_required():
    rules = get_protocol("verified").model_copy(update={"require_custom_kernel": True, "custom_share_at_least": 0.02})
    decoy, _ = make_evaluator(make_result(trace=TRACE), protocol=rules)
    verdict = decoy.evaluate(PROBLEM, TRITON_SOURCE)
    assert (verdict.status, verdict.stage) == (Status.NO_CUSTOM_KERNEL, Stage.PROVENANCE)
    assert "1.00%" in verdict.message
    assert "cuBLAS 99.0%" in verdict.message
    assert verdict.checks[-1].evidence["share"] == 0.01
    assert verdict.provenance is not None
    assert verdict.provenance.self_reported
    lenient, _ = make_evaluator(make_result(trace=TRACE))
    assert lenient.evaluate(PROBLEM, TRITON_SOURCE).credited


def test_a_share_that_was_not_measured_refuses_nothing():
    rules = get_protocol("verified").model_copy(update={"require_custom_kernel": True, "custom_share_at_least": 0.02})
    evaluator, _ = make_evaluator(make_result(), protocol=rules)
    verdict = evaluator.evaluate(PROBLEM, TRITON_SOURCE)
    assert verdict.credited
    assert verdict.provenance is None


def test_the_source_is_screened_whatever_becomes_of_it():
    evaluator, _ = make_evaluator(make_result(Status.WRONG_VALUE))
    verdict = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert [(finding.rule, finding.line) for finding in verdict.screen] == [("reference-operation", 7)]
    assert [finding.rule for finding in evaluator.format_error(PROBLEM, "no code").screen] == ["no-model"]


def test_what_depends_on_the_problem_alone_is_read_once_and_not_for_every_source(monkeypatch):
    parsed: list[str] = []

    def parse(source, *given, **options):
        parsed.append(source)
        return compile(source, "<unknown>", "exec", ast.PyCF_ONLY_AST)

    monkeypatch.setattr(ast, "parse", parse)
    problem = make_problem(source=f"{PROBLEM.source}# read once\n", sizes={"cpu": {"rows": 3}})
    evaluator, sandbox = make_evaluator(make_result())
    for number in range(3):
        evaluator.evaluate(problem, f"{SUBMISSION_SOURCE}# {number}\n")
        sandbox.jobs[-1].to_message()
    assert sorted(source for source in parsed if "# read once" in source) == sorted(
        [problem.source, problem.source_for("cpu")]
    )


def test_a_right_source_is_read_while_the_judge_measures_memory_and_not_while_it_times(monkeypatch):
    happened: list[str] = []

    class Judging(ScriptedSandbox):
        def run(self, job: Job, on_phase: Callable[[str], None]) -> Result:
            for phase in ("timing", "memory"):
                on_phase(phase)
            happened.append("result")
            return make_result()

    def look(*_, **__):
        happened.append("read")
        return ()

    monkeypatch.setattr("kbenv.evaluator.screen", look)
    evaluator, _ = make_evaluator(on_phase=happened.append)
    evaluator._sandbox = Judging()
    evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert happened == ["timing", "memory", "read", "result"]


def test_the_floor_is_the_judges():
    plausibility = make_plausibility(0.5, below_floor=True)
    evaluator, _ = make_evaluator(make_result(plausibility=plausibility.model_dump()))
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).plausibility == plausibility


def test_a_wrong_source_stays_wrong_whatever_kernels_it_has():
    evaluator, _ = make_evaluator(make_result(Status.WRONG_VALUE), require_custom_kernel=True)
    assert evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE).status is Status.WRONG_VALUE


def test_an_answer_without_code_is_a_format_error_and_runs_nothing():
    evaluator, sandbox = make_evaluator(make_result())
    verdict = evaluator.format_error(PROBLEM, "the answer holds no code")
    assert (verdict.status, verdict.stage, verdict.message) == (
        Status.FORMAT_ERROR,
        Stage.FORMAT,
        "the answer holds no code",
    )
    assert sandbox.jobs == []


def test_evaluate_closes_what_it_opened(monkeypatch):
    sandbox = ScriptedSandbox(make_result())
    monkeypatch.setattr("kbenv.evaluator.open_sandbox", lambda *_: (sandbox, "cpu", None))
    assert evaluate(PROBLEM, SUBMISSION_SOURCE, device="cpu", protocol="verified").credited
    assert sandbox.closed == 1


@pytest.mark.parametrize("protocol", ["hardened", get_protocol("verified")])
def test_effort_is_a_rule_of_the_protocol_that_the_verdict_records(protocol):
    evaluator, sandbox = make_evaluator(make_result(), protocol=protocol, effort="quick")
    verdict = evaluator.evaluate(PROBLEM, SUBMISSION_SOURCE)
    assert sandbox.jobs[0].protocol.effort == verdict.protocol.effort == "quick"
    assert sandbox.jobs[0].protocol.timing.runner_pairs == 1
