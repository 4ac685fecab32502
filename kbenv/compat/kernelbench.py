"""`eval_kernel_against_ref` with upstream KernelBench's signature and result, judged by kbenv.

    from kbenv.compat.kernelbench import eval_kernel_against_ref

in the place of `from kernelbench.eval import eval_kernel_against_ref` switches an existing harness. The rules are the
protocol `kernelbench`, that is upstream's seeds, inputs and tolerance, on the judge's clock and in a sandbox; or any
other by `protocol`. Results differ from upstream's where upstream was deceived.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import statistics
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.problems.problem import Problem
from kbenv.protocol import Precision, Protocol, get_protocol
from kbenv.verdict import Stage, Status, Verdict

if TYPE_CHECKING:
    import torch

PROTOCOL = "kernelbench"
_COMPILED = frozenset(Status) - {Status.FORMAT_ERROR, Status.LOAD_ERROR, Status.COMPILE_ERROR}


class KernelExecResult(BaseModel):
    """Upstream's fields, with upstream's -1 and {} for what was not measured; `verdict` is ours.

    Attributes:
        compiled: whether building and constructing the model succeeded.
        metadata: hardware, device, what failed and where, and kbenv's status.
        runtime: mean milliseconds a call, -1 when not measured (upstream's comment says microseconds; its numbers are
            milliseconds).
        ref_runtime: likewise of the reference.
    """

    compiled: bool = False
    correctness: bool = False
    metadata: dict[str, Any] = {}
    runtime: float = -1.0
    runtime_stats: dict[str, Any] = {}
    ref_runtime: float = -1.0
    ref_runtime_stats: dict[str, Any] = {}
    verdict: Verdict | None = None


def eval_kernel_against_ref(
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,
    timing_method: str = "cuda_event",
    verbose: bool = False,
    build_dir: os.PathLike[str] | str | None = None,
    device: torch.device | int | str | None = None,
    backend: str = "cuda",
    precision: torch.dtype | str = "fp32",
    check_for_excessive_speedup: bool = True,
    excessive_speedup_threshold: float = 10,
    *,
    protocol: str = PROTOCOL,
    sandbox: str = "auto",
) -> KernelExecResult | None:
    """Judges `custom_model_src` (`ModelNew`) against `original_model_src` (`Model`, `get_inputs`, `get_init_inputs`).

    Args:
        seed_num: seeds construction; the trials' seeds follow upstream's rule from it.
        num_correct_trials: trials that must all be right.
        num_perf_trials: timed calls, at least.
        measure_performance: whether runtimes are in the result. (The judge times every right kernel: outputs of timed
            calls are checked too.)
        timing_method: upstream's; the judge has one clock, and anything but upstream's names is refused.
        verbose: say each phase on standard error.
        build_dir: upstream's; the sandbox builds in scratch of its own, and nothing is written here.
        device: a number, "cuda:N", torch.device, "cpu", or None for the first GPU that PyTorch sees, else the CPU.
        backend: upstream's names are taken; it chooses nothing, the source says what it is written in.
        precision: a torch dtype or its short name.
        check_for_excessive_speedup, excessive_speedup_threshold: mark more than this in the metadata.
        protocol, sandbox: kbenv's own.

    Returns:
        The result; None, as upstream for what is to be tried again, when there is no verdict for no fault of the
        kernel's.

    Raises:
        UsageError: an argument is no good.
    """
    if timing_method not in ("cuda_event", "do_bench", "do_bench_impl", "host_time"):
        raise UsageError(f"timing_method must be one of upstream's; found {timing_method!r}")
    evaluator = _evaluator(protocol, _precision(precision), _device(device), sandbox, num_correct_trials,
                           num_perf_trials, seed_num, verbose)  # fmt: skip
    name = f"compat/{hashlib.sha256(original_model_src.encode()).hexdigest()[:12]}"
    problem = Problem(id=name, name=name, level=None, source=original_model_src)
    try:
        verdict = evaluator.evaluate(problem, custom_model_src)
    except SandboxError as error:
        print(f"kbenv: no result: {error}", file=sys.stderr)
        return None
    threshold = excessive_speedup_threshold if check_for_excessive_speedup else None
    return read_result(verdict, measure_performance=measure_performance, excessive_speedup=threshold)


def read_result(
    verdict: Verdict, *, measure_performance: bool = True, excessive_speedup: float | None = None
) -> KernelExecResult:
    """Upstream's result of a verdict.

    Args:
        measure_performance: whether runtimes are in it.
        excessive_speedup: a speedup above this is marked; None marks none.
    """
    device = verdict.hardware.device if verdict.hardware is not None else None
    name = verdict.hardware.name if verdict.hardware is not None else None
    compiled = verdict.status in _COMPILED and verdict.stage is not Stage.LOAD
    metadata: dict[str, Any] = {"hardware": name, "device": device, "kbenv_status": verdict.status.value}
    if not compiled:
        metadata |= {"compilation_error_name": verdict.status.value, "compilation_error": verdict.message}
    elif verdict.status in (Status.WRONG_VALUE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.WRONG_HIDDEN):
        metadata |= {"correctness_issue_name": verdict.status.value, "correctness_issue": verdict.message}
    elif not verdict.credited:
        metadata |= {"runtime_error_name": verdict.status.value, "runtime_error": verdict.message}
    measured = verdict.measurement if measure_performance and verdict.credited else None
    if measured is not None and excessive_speedup is not None and _speedup(verdict) > excessive_speedup:
        metadata["excessive_speedup"] = True
    result = KernelExecResult(compiled=compiled, correctness=verdict.credited, metadata=metadata, verdict=verdict)
    if measured is None or verdict.latency_ms is None or verdict.reference_latency_ms is None:
        return result
    return result.model_copy(
        update={
            "runtime": verdict.latency_ms,
            "runtime_stats": _stats(verdict.latency_ms, measured.submission_turns_ms, name, device),
            "ref_runtime": verdict.reference_latency_ms,
            "ref_runtime_stats": _stats(verdict.reference_latency_ms, measured.reference_turns_ms, name, device),
        }
    )


def _speedup(verdict: Verdict) -> float:
    return verdict.speedup.value if verdict.speedup is not None else 0.0


def _stats(mean: float, turns: tuple[float, ...], hardware: str | None, device: str | None) -> dict[str, Any]:
    return {
        "mean": mean, "std": statistics.pstdev(turns), "min": min(turns), "max": max(turns), "num_trials": len(turns),
        "hardware": hardware, "device": device,
    }  # fmt: skip


@cache
def _evaluator(
    name: str, precision: Precision, device: str, sandbox: str, trials: int, calls: int, seed: int, verbose: bool
) -> Evaluator:
    """One warm judge for each set of rules, for as long as the process lives."""
    if trials < 1 or calls < 1:
        raise UsageError(f"trials must be at least 1; found num_correct_trials={trials}, num_perf_trials={calls}")
    base = get_protocol(name, precision)
    timing = base.timing.model_copy(update={"timed_calls": calls})
    protocol: Protocol = base.model_copy(
        update={"standard_trials": trials, "construction_seed": seed, "timing": timing}
    )
    on_phase = (lambda phase: print(f"kbenv: {phase}", file=sys.stderr)) if verbose else None
    evaluator = Evaluator(protocol=protocol, device=device, sandbox=sandbox, on_phase=on_phase)
    atexit.register(evaluator.close)
    return evaluator


def _precision(precision: torch.dtype | str) -> Precision:
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    text = str(precision).removeprefix("torch.")
    text = names.get(text, text)
    if text not in get_args(Precision):
        raise UsageError(f"precision must be one of torch.float32, torch.float16, torch.bfloat16; found {precision!r}")
    return text  # type: ignore[return-value]  # it has just been looked up


def _device(device: torch.device | int | str | None) -> str:
    if device is None:
        return "auto"
    return f"cuda:{device}" if isinstance(device, int) else str(device)
