"""One thing that `kbenv doctor` looked for, and how it looks without disturbing the process that asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "missing", "optional"]
Need = Literal["cpu", "gpu"]

_CHILD_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        name: what was looked for.
        state: "ok" (there), "missing" (not there, and this machine needs it), "optional" (not there, and judging goes
            on without it).
        found: what was seen.
        advice: what to do about it; None when there is nothing to do.
        needed_for: judging on which device fails without it; None when none does.
    """

    name: str
    state: State
    found: str
    advice: str | None = None
    needed_for: Need | None = None


def ask_child(script: str, *arguments: str, timeout_s: float = _CHILD_TIMEOUT_S) -> dict[str, Any] | str:
    """The JSON object that `script` prints in an isolated interpreter, or in words why there is none.

    The child has a session of its own: what it starts (ssh) cannot ask at the terminal, and ends with it.
    """
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", script, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as e:
        return str(e)
    with child:
        try:
            output, words = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout_s:g} s"
        finally:
            if child.returncode is None:  # out of time, or interrupted
                os.killpg(child.pid, signal.SIGKILL)
    if child.returncode != 0:
        lines = words.strip().splitlines()
        return lines[-1] if lines else f"the probe ended with status {child.returncode}"
    answer: dict[str, Any] = json.loads(output)
    return answer


def read_tool(command: list[str]) -> str | None:
    """What `command` prints; None when it is not installed or fails."""
    try:
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_CHILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return child.stdout if child.returncode == 0 else None
