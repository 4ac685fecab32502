"""What a submission's source says of itself: its backend, and evidence of a custom kernel. Pure functions of text.

Evidence in a source is telemetry: a kernel may be compiled and never launched. It decides NO_CUSTOM_KERNEL only in the
one direction that it can: a source without any such evidence has no custom kernel.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Literal

Backend = Literal["auto", "cuda", "triton", "cpp", "c"]
BACKENDS: tuple[Backend, ...] = ("auto", "cuda", "triton", "cpp", "c")

_PATTERNS: dict[str, tuple[tuple[str, str], ...]] = {
    "cuda": (
        (r"__global__", "a __global__ function"),
        (r"\bcuda_sources\b", "load_inline with CUDA sources"),
        (r"\bRawKernel\b|\bRawModule\b", "a CuPy raw kernel"),
        (r"\b_compile_kernel\b|\bnvrtc\b", "NVRTC"),
    ),
    "triton": ((r"@\s*(?:\w+\.)*jit\b", "a jit function"),),
    "cpp": ((r"\bload_inline\b|\bcpp_extension\b", "a C++ extension"),),
    "c": ((r"\bCDLL\b|\bLoadLibrary\b", "a library loaded by ctypes"), (r"\bcffi\b", "cffi")),
}


def custom_kernel_evidence(source: str) -> dict[str, tuple[str, ...]]:
    """Per backend, what in the source (comments left out where it parses) points to a custom kernel."""
    text = _without_comments(source)
    found = {
        backend: tuple(words for pattern, words in patterns if re.search(pattern, text))
        for backend, patterns in _PATTERNS.items()
    }
    if not re.search(r"^\s*(?:import|from)\s+triton\b", text, re.MULTILINE):
        found["triton"] = ()
    return {backend: words for backend, words in found.items() if words}


def detect_backend(source: str) -> str:
    """The backend the source points to: cuda, triton, cpp, c, or "torch" when nothing does."""
    evidence = custom_kernel_evidence(source)
    return next((backend for backend in ("cuda", "triton", "cpp", "c") if backend in evidence), "torch")


def _without_comments(source: str) -> str:
    """Docstrings and comments removed by a round trip through the syntax tree; the source itself if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a source's invalid escapes are its own affair
            tree = ast.parse(source.removeprefix("\ufeff"))
        for node in ast.walk(tree):
            match node:
                case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if ast.get_docstring(
                    node
                ):
                    node.body = [*node.body[1:], ast.Pass()]
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a long sum nests deeper than `unparse` can follow
        return source
