"""The builder: a process that runs compilers on sources that the judge hands it, and nothing of the submission's.

It is forked and confined like a submission's runner, under a user of its own, and lives for one build. What it makes
goes into memory files that the judge gave it, which the judge reads when no process of this user is left.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ..wire import Message
from .machine_code import MOST_KERNELS, DumpError, dump

_TEXT_BYTES = 16 << 10
"""Of each half of what a compiler says."""


class Compiler:
    """Answers the judge in a builder, as `Runner` does in a runner."""

    def describe(self) -> Message:
        return {}

    def do_compile(self, message: Message, descriptors: list[int]) -> Message:
        """Compiles every unit, all at once, and links if all went well.

        Args:
            message: `files` (path -> text, to be written), `given` (paths to be made from the first descriptors),
                `units` (each a list of commands: the first that succeeds ends it), `link` (a command or None), and
                `wanted` (paths of results, one for each unit and then the link's).
            descriptors: one for each of `given`, then one for each of `wanted`.

        Returns:
            `units` and `link`: `status` (the exit code), `text`, and `attempt` (which command); None for a link that
            was not tried.
        """
        for path, text in message["files"].items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
        given, targets = descriptors[: len(message["given"])], descriptors[len(message["given"]) :]
        for path, descriptor in zip(message["given"], given, strict=True):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.symlink(f"/proc/self/fd/{descriptor}", path)
        running = [_Unit(number, commands, given) for number, commands in enumerate(message["units"])]
        units = [unit.finish() for unit in running]
        link: Message | None = None
        if message["link"] is not None and all(unit["status"] == 0 for unit in units):
            link = _Unit(len(units), [message["link"]], given).finish()
        results = [*units, link] if message["link"] is not None else units
        for path, target, result in zip(message["wanted"], targets, results, strict=True):
            if result is not None and result["status"] == 0:
                _copy(path, target)
        for descriptor in descriptors:
            os.close(descriptor)
        return {"units": units, "link": link}

    def do_dump(self, _: Message, descriptors: list[int]) -> Message:
        """The kernels in libraries, as `machine_code.read_rows` has them, and why there are none or None."""
        kernels: list[Message] = []
        reason = None
        for number, descriptor in enumerate(descriptors):
            path = f"library-{number}.so"
            os.symlink(f"/proc/self/fd/{descriptor}", path)
            try:
                kernels += dump(path, inherited=[descriptor])
            except DumpError as e:
                reason = str(e)
        return {"kernels": kernels[:MOST_KERNELS], "reason": reason}


class _Unit:
    """Commands of which the first that succeeds counts; the first one starts at once."""

    def __init__(self, number: int, commands: list[list[str]], inherited: list[int]) -> None:
        self._output = f"said-{number}"
        self._commands = commands
        self._inherited = inherited
        self._attempt = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[Any]:
        with open(self._output, "wb") as output:
            return subprocess.Popen(
                self._commands[self._attempt], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=self._inherited,
            )  # fmt: skip

    def finish(self) -> Message:
        while self._process.wait() != 0 and self._attempt + 1 < len(self._commands):
            self._attempt += 1
            self._process = self._start()
        return {"status": self._process.returncode, "text": _text_of(self._output), "attempt": self._attempt}


def _text_of(path: str) -> str:
    """What a compiler said, bounded: the beginning, and the end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= 2 * _TEXT_BYTES:
            return file.read().decode(errors="replace")
        head = file.read(_TEXT_BYTES)
        file.seek(size - _TEXT_BYTES)
        middle = f"\n... {size - 2 * _TEXT_BYTES} bytes left out ...\n".encode()
        return (head + middle + file.read()).decode(errors="replace")


def _copy(path: str, target: int) -> None:
    with open(path, "rb") as file:
        offset, size = 0, os.fstat(file.fileno()).st_size
        while offset < size:
            offset += os.sendfile(target, file.fileno(), offset, size - offset)
