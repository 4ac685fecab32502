"""What went wrong in a runner, in a form that the judge reads as text and as one of a few kinds."""

from __future__ import annotations

import os
import subprocess
import traceback
from typing import Any

import torch

from ..wire import Message
from . import model as models

_DETAIL_BYTES = 12 << 10
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SOURCE = "submission.py"


_NO_MEMORY = ("can't allocate memory", "cuda error: out of memory", "status_alloc_failed")
"""Of the host's allocator, of what calls the driver itself, and of cuBLAS and cuDNN where they make a handle."""


class Mismatch(Exception):
    """An output of another structure, shape or dtype than the reference's."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def describe_error(error: BaseException) -> Message:
    """Kind, type, message, detail, and whether the CUDA context is beyond use."""
    text = str(error)
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    kind, fatal = "runtime", False
    lowered = text.lower()
    if isinstance(error, Mismatch):
        kind = error.kind
    elif isinstance(error, models.NoModelError | SyntaxError):
        kind = "load"
    elif any(_is_compile_error(link) for link in chain):
        kind = "compile"
    elif isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in lowered for words in _NO_MEMORY):
        kind = "memory"
    elif any(words in lowered for words in ("illegal memory access", "misaligned address", "illegal address")):
        kind, fatal = "access", True
    elif type(error).__name__ == "AcceleratorError" or "unspecified launch failure" in lowered:
        kind, fatal = "access" if "launch failure" in lowered else "runtime", True
    detail = "" if isinstance(error, Mismatch | models.NoModelError) else trace(error)
    for link in chain:
        if isinstance(link, subprocess.CalledProcessError):
            for stream in (link.stderr, link.stdout):
                words = stream.decode(errors="replace") if isinstance(stream, bytes) else stream or ""
                if words.strip() not in detail:  # load_inline repeats what the compiler said in an error of its own
                    detail += f"\n{words}"
    return {
        "kind": kind, "fatal": fatal, "type": type(error).__name__,
        "message": text.strip().split("\n")[0][:500] or type(error).__name__, "detail": _bounded(detail),
    }  # fmt: skip


def trace(error: BaseException) -> str:
    """The traceback for who wrote the source: without the sandbox's own frames, the source by its name alone.

    Folders of a runner are new in every job: with them equal faults would read differently each time.
    """
    whole = traceback.TracebackException.from_exception(error)
    folders: set[str] = set()
    seen: set[int] = set()
    links = [whole]
    while links:
        link = links.pop()
        seen.add(id(link))
        frames = [frame for frame in link.stack if not frame.filename.startswith(_OWN_FOLDER)]
        folders |= {os.path.dirname(frame.filename) for frame in frames if os.path.basename(frame.filename) == _SOURCE}
        folders.add(os.path.dirname(str(getattr(link, "filename", None) or "")))  # of a SyntaxError: any object
        link.stack = traceback.StackSummary.from_list(frames)
        links += [next for next in (link.__cause__, link.__context__) if next is not None and id(next) not in seen]
    text = "".join(whole.format())
    for folder in folders - {""}:
        text = text.replace(f"{folder}/{_SOURCE}", _SOURCE)
    return text


def _is_compile_error(error: BaseException) -> bool:
    name, module = type(error).__name__, type(error).__module__
    return (
        "Error building extension" in str(error)
        or module.startswith(("triton.compiler", "triton.runtime.errors"))
        or name in ("CompilationError", "CompileError", "CompileException", "NVRTCError")
        or (isinstance(error, subprocess.CalledProcessError) and _is_compiler(error.cmd))
        or "NVRTC" in str(error)
    )


def _is_compiler(command: Any) -> bool:
    words = command.split() if isinstance(command, str) else [str(word) for word in command or [""]]
    return os.path.basename(words[0] if words else "") in {
        "cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "ninja", "make", "c99", "icx", "hipcc",
    }  # fmt: skip


def _bounded(text: str) -> str:
    if len(text) <= _DETAIL_BYTES:
        return text
    half = _DETAIL_BYTES // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
