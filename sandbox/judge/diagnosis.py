"""What is looked at when it is asked for, decides nothing, and is told to a submission's author: `diagnostics`.

"code": the machine code of what was built. "counters": Nsight Compute's of one call. "access": where
compute-sanitizer sees the first bad access of a submission that fails by one. All of it is of standard trials, before
a hidden input is drawn. Where a tool is missing, refused or too slow, the reason is told instead: no status follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runner.machine_code import MOST_KERNELS, checked
from ..runner.tool import NCU, NCU_OPTIONS, SANITIZER, SANITIZER_OPTIONS, UNCACHED, read_answer
from ..wire import Message
from .arm import ArmError
from .faults import SubmissionFault
from .provenance import printable

if TYPE_CHECKING:
    from .job import Job

_CODE_S, _COUNTERS_S, _ACCESS_S = 60.0, 60.0, 60.0
_GRACE_S = 5.0
_OWN_SEED = 0
"""Of a draw that belongs to no trial, where those are secret."""
_REASON_CHARACTERS = 300
_VISIBLE = ("load", "standard")


def diagnose_right(job: Job) -> None:
    """After the standard trials, all of them right: leaves `code` and `counters` in the job's diagnosis."""
    wanted = job.protocol["diagnostics"]
    if "code" in wanted:
        _read_code(job)
    if "counters" in wanted:
        job.stop_arm("submission")
        _run_under(job, "counters", NCU, NCU_OPTIONS, {}, _COUNTERS_S)
        job.recreate_submission("standard")


def asks_for_access(job: Job, fault: SubmissionFault) -> bool:
    """Whether a fault is a bad access that its author may be told about, and that is asked for."""
    seen = fault.status == "ILLEGAL_ACCESS" and fault.stage in _VISIBLE
    return seen and "access" in job.protocol["diagnostics"]


def diagnose_access(job: Job) -> None:
    """After such a fault: leaves `access` in the job's diagnosis."""
    job.stop_arm("submission")
    _run_under(job, "access", SANITIZER, SANITIZER_OPTIONS, UNCACHED, _ACCESS_S)


def _read_code(job: Job) -> None:
    """What the judge had built, by a builder's word; what a submission's own compilers keep, by its own."""
    built, reason = job.read_built_code(_CODE_S)
    rows = [{**row, "self_reported": False} for row in built or ()]
    try:
        arm = job.arm("submission")
        with_built = built is None and reason is None
        answer = arm.ask("read_code", timeout_s=job.remaining(_CODE_S, "standard"), with_built=with_built)
        own = checked(answer.get("kernels"))
        if not (rows or own):
            reason = reason or answer.get("reason") or "nothing was built that cuobjdump could read"
        rows += [{**row, "self_reported": True} for row in own or ()]
    except ArmError as e:
        reason = reason or str(e)
        job.recreate_submission("standard")
    _leave(job, "code", rows[:MOST_KERNELS], reason)


def _run_under(
    job: Job, name: str, tool: str, options: tuple[str, ...], environment: dict[str, str], limit_s: float
) -> None:
    """One more run of the submission under a tool, in a runner that is there for nothing else."""
    if job.device != "cuda":
        _leave(job, name, "", f"{tool} looks at GPUs alone")
        return
    left_s = job.left_s() - _GRACE_S
    if left_s <= 0:
        _leave(job, name, "", "no time was left for it")
        return
    protocol = job.protocol
    specification = {
        "problem": job.problem["source"], "source": job.source, "precision": protocol["precision"],
        "seed": _OWN_SEED if protocol["secret_seeds"] else job.seeds.standard[0], "threads": 1, "device": job.device,
        "construction_seed": job.seeds.construction, "tf32": protocol["tf32"]["submission"],
        "profiled": name == "counters",
    }  # fmt: skip
    timeout_s = min(limit_s, left_s)
    try:
        with job.open_arm("submission") as arm:
            answer = arm.ask(
                "run_under", timeout_s=timeout_s + _GRACE_S, tool=tool, options=list(options),
                environment=environment, limit_s=timeout_s, specification=specification,
            )  # fmt: skip
        text, reason = read_answer(answer) or ("", f"{tool}'s answer has no known form")
    except ArmError as e:
        text, reason = "", str(e)
    _leave(job, name, text, reason)


def _leave(job: Job, name: str, found: list[Message] | str, reason: str | None) -> None:
    diagnosis: Message = job.result.setdefault("diagnosis", {"missing": {}})
    diagnosis[name] = found
    if reason is not None:
        diagnosis["missing"][name] = printable(str(reason))[:_REASON_CHARACTERS]
