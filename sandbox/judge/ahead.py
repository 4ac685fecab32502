"""What a submission builds, built before its job by a judge without the device, and kept for the job's judge.

The submission's module is loaded, and its model constructed on the CPU, in a runner like that of a job: what it asks to
be built there is built and kept as in a job (`build`), under keys that say nothing of who asked. Nothing else comes of
it. Whatever the submission does here, its job begins as if it had not: the runner, its user's files and its folder are
gone, and no seed and no input of any job is known to this judge.

Not covered: what needs the device before it is built, what forward builds, and names or sources that differ from
process to process. That is built in the job.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial

from ..wire import Message
from ..zygote import Zygote
from .arm import Arm, ArmError
from .artifacts import Artifacts
from .build import Builds
from .faults import InfrastructureFault
from .setting import Setting

_OWN_S = 30.0
"""Of the submission itself, beside what is built for it: one that does not end by then is left to its job."""
_LOADED = "loaded"


def build_ahead(
    spec: Message, zygote: Zygote, uids: Sequence[int] | None, artifacts: Artifacts | None
) -> tuple[Message, bool]:
    """Builds what the submission of a job asks for while it is loaded.

    Args:
        spec: the job; its "stand_in" is what the submission is told of the device (see `runner/stand_in`), or None.
        uids: of a job: the first two serve here.

    Returns:
        "build" (see `Builds.facts`), "ended" ("loaded", or the kind of error that ended it) and "seconds"; and whether
        another one may follow in this judge.

    Raises:
        InfrastructureFault: nothing that is built here would be found by another judge.
    """
    if uids is None or artifacts is None:
        raise InfrastructureFault(
            "sandbox", "what is built ahead is not kept: that needs root, and a folder of root's own"
        )
    limits = spec["protocol"]["limits"]
    left: list[str] = []
    builds = Builds(zygote, artifacts, limits, uids[1], left.append)
    started = time.monotonic()
    scratch = zygote.new_scratch("submission", uids[0], limits["scratch_bytes"])
    try:
        ended = _load(spec, zygote, uids[0], scratch, builds, started)
    finally:
        builds.close()
        with contextlib.suppress(OSError, RuntimeError):
            zygote.wipe_scratch("submission")
            scratch = ""
    facts = {"build": builds.facts, "ended": ended, "seconds": round(time.monotonic() - started, 4)}
    return facts, not (left or scratch)


def _load(spec: Message, zygote: Zygote, uid: int, scratch: str, builds: Builds, started: float) -> str:
    """How it ended. No error of the submission's matters: its job will say what is wrong."""
    protocol = spec["protocol"]
    try:
        with Arm(zygote, "submission", Setting("cpu", 1, protocol["limits"]), uid, scratch) as arm:
            arm.build = builds.answer
            arm.watch = partial(_expect_progress, builds, started)
            if spec["stand_in"] is not None:
                arm.ask("stand_in", timeout_s=_OWN_S, device=spec["stand_in"])
            arm.ask(
                "load", timeout_s=protocol["limits"]["build_s"], problem=spec["problem"]["source"],
                source=spec["source"], entry="ModelNew", seed=0, precision=protocol["precision"],
                tf32=protocol["tf32"]["submission"], redraw=None,
            )  # fmt: skip
    except ArmError as e:
        return e.kind
    return _LOADED


def _expect_progress(builds: Builds, started: float) -> None:
    own_s = time.monotonic() - started - builds.facts["seconds"]
    if own_s > _OWN_S:
        raise ArmError("timeout", f"{own_s:.0f} s without anything to build")
