"""Runs code where a submission runs, and brings back what it has seen."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from kbenv.evaluator import Evaluator
from kbenv.verdict import Status
from tests.judge.corpus import TESTS, load_case, small

RELU = "core/level1/relu"
SMALL_RELU = small(RELU)
HONEST = load_case(TESTS / "statuses" / "passed.py")
DISTURBANCES = (
    "statuses/illegal_access.py",
    "exploits/i6_infinite_loop_in_c.py",
    "exploits/i6_stop_itself.py",
    "exploits/i6_fork_bomb.py",
    "exploits/i6_grandchildren.py",
    "exploits/i6_memory_hog.py",
    "exploits/i6_disk_filler.py",
    "exploits/i5_plant_modules.py",
    "exploits/i4_oversized_frame.py",
    "exploits/i13_kill_parent.py",
)
"""After each of these the next honest submission must be credited."""
WRONG = "torch.full_like(x, -1.0)"
PRELUDE = '''
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time


def refusal(action, *arguments):
    """The name of the error that `action` ends in, None when it is done."""
    try:
        action(*arguments)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    except ValueError:  # how `resource` puts it
        return "EPERM"
    return None


def call(number, *arguments):
    """A system call by its number. Raises OSError."""
    result = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result == -1:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def python(program):
    """The command that runs a program in an interpreter of its own."""
    return [sys.executable, "-I", "-c", textwrap.dedent(program)]


def daemon(*command):
    """Starts a command in a session of its own, as an orphan without descriptors; returns its pid."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            os.closerange(0, 1024)
            os.open(os.devnull, os.O_RDWR)
            os.dup(0)
            os.dup(0)
            os.execv(command[0], command)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 20))
'''
"""What the code may use besides the standard modules that it imports."""


def make_submission(code: str, answer: str = WRONG, *, at_call: int = 1) -> str:
    """The source of a submission that runs `code` in one of its calls and returns `answer` from all."""
    body = textwrap.indent(textwrap.dedent(code), " " * 12)
    return (
        f"{PRELUDE}\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    calls = 0\n\n"
        "    def forward(self, x):\n        type(self).calls += 1\n"
        f"        if self.calls == {at_call}:\n{body}\n        return {answer}\n"
    )


def run_inside(evaluator: Evaluator, code: str) -> dict[str, Any]:
    """Runs `code` in a submission's forward; what it leaves in the dict `seen` comes back."""
    code = textwrap.dedent(code)
    program = f"seen = {{}}\n{code}\nprint('SEEN', json.dumps(seen), flush=True)\nraise RuntimeError('that is all')\n"
    verdict = evaluator.evaluate(SMALL_RELU, make_submission(program))
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    return seen_in(verdict.output or "", verdict.detail)


def seen_in(output: str, otherwise: object) -> dict[str, Any]:
    """What was seen, from what was printed; fails with `otherwise` when it was not."""
    found = [line.removeprefix("SEEN ") for line in output.splitlines() if line.startswith("SEEN ")]
    assert found, otherwise
    seen: dict[str, Any] = json.loads(found[-1])
    return seen
