"""Whose fault it is when a GPU's memory runs out: the submission's, or that of something else on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from . import memory
from .faults import InfrastructureFault, SubmissionFault

if TYPE_CHECKING:
    from .job import Job

_GIB = 1 << 30
_BEYOND, _BEYOND_SHARE = _GIB, 0.5
"""What a submission may hold beyond what the plan has for a runner: so much, or half of what the plan leaves over."""


def expect_room(runner_bytes: int) -> None:
    """For a submission that found too little memory and is gone: that there is as much as a runner takes.

    Raises:
        InfrastructureFault: there is less; something else has taken it since the plan was made.
    """
    before = memory.free_bytes()
    free = before + memory.given_back(before, runner_bytes - before)
    if free < runner_bytes:
        raise InfrastructureFault(
            "memory",
            f"the submission ran out of memory, of which {free / _GIB:.2f} GiB are free without it, while a kernel "
            f"like the reference takes {runner_bytes / _GIB:.2f}: something else has taken what was free before; "
            "leave the device to the judge",
        )


@contextlib.contextmanager
def charged_to_its_holder(job: Job) -> Iterator[None]:
    """Memory that the reference or the judge lacks, since the submission holds it, is the submission's fault.

    Raises:
        SubmissionFault: OUT_OF_MEMORY.
    """
    try:
        yield
    except (InfrastructureFault, torch.OutOfMemoryError, MemoryError) as fault:
        if job.device == "cpu" or getattr(fault, "kind", "memory") != "memory" or not job.has("submission"):
            raise
        before, plan = memory.free_bytes(), job.plan
        job.arm("submission").stop()
        held = memory.given_back(before, plan.runner_bytes)
        if held <= plan.runner_bytes + max(_BEYOND, _BEYOND_SHARE * (plan.have_bytes - plan.need_bytes)):
            raise
        raise SubmissionFault(
            "OUT_OF_MEMORY", job.stage,
            f"it holds {held / _GIB:.2f} GiB of the device, where a kernel like the reference takes "
            f"{plan.runner_bytes / _GIB:.2f}, and leaves too little for the reference",
        ) from fault  # fmt: skip
