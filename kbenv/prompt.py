"""The prompt of a problem: what a model reads before its first answer. The text itself lives in `prompts/`."""

from __future__ import annotations

from kbenv.problems.problem import Problem
from kbenv.prompts import render
from kbenv.protocol import Protocol


def render_prompt(problem: Problem, protocol: Protocol, device: str, backend: str = "auto") -> str:
    """The task as text: the reference with the sizes of `device`, and the rules of `protocol`, openly.

    Says that hidden inputs exist and never which.

    Args:
        problem: the problem.
        protocol: the rules that the answer will be judged by.
        device: "cpu" or "cuda:N".
        backend: the kernel language that is wanted, or "auto" for any that the device has.
    """
    return render(
        "single_turn.j2",
        problem=problem,
        source=problem.source_shown(device),
        protocol=protocol,
        kind="cpu" if device.split(":")[0] == "cpu" else "cuda",
        backend=backend,
    )
