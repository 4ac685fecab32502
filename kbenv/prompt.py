"""The prompt of a problem: what a model reads before its first answer. The text itself lives in `prompts/`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import kbenv.prompts
from kbenv.errors import UsageError
from kbenv.gpu import REGISTERS, Facts
from kbenv.problems.loaders import file
from kbenv.problems.problem import Problem, parse_source
from kbenv.prompts import render
from kbenv.protocol import Protocol

Shots = Literal["zero", "one", "few"]
SHOTS: tuple[Shots, ...] = ("zero", "one", "few")
View = Literal["full", "blind"]
VIEWS: tuple[View, ...] = ("full", "blind")

EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "elementwise": "Element-wise operations in one pass",
        "matmul": "A product in tiles",
        "attention": "Attention without a matrix of scores",
    }
)
"""The worked examples under `prompts/examples`, each with a reference and an answer in every language that has one."""

_ATTENTION = frozenset({"softmax", "scaled_dot_product_attention", "MultiheadAttention", "Softmax", "log_softmax"})
_PRODUCTS = frozenset(
    {
        "matmul", "mm", "bmm", "addmm", "baddbmm", "linear", "Linear", "einsum", "conv1d", "conv2d", "conv3d",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
        "ConvTranspose2d", "ConvTranspose3d", "Bilinear", "LSTM", "GRU", "RNN",
    }
)  # fmt: skip


@dataclass(frozen=True)
class PromptOptions:
    """What a prompt holds beside the task itself.

    Attributes:
        shots: "zero" examples, "one" (the one nearest to the problem's category), or a "few" (all of them).
        hardware: facts about a device; None: none are told. `kbenv.gpu.facts_about` makes them.
        concepts: what decides the speed on such a device.
        view: "full", or "blind": without `get_inputs`, so that nothing can be fitted to how inputs are drawn; None:
            as the problem says.
    """

    shots: Shots = "zero"
    hardware: Facts | None = None
    concepts: bool = False
    view: View | None = None


def render_prompt(
    problem: Problem,
    protocol: Protocol,
    device: str,
    backend: str = "auto",
    options: PromptOptions | None = None,
) -> str:
    """The task as text: the reference with the sizes of `device`, and the rules of `protocol`, openly.

    Says that hidden inputs exist and never which.

    Args:
        problem: the problem.
        protocol: the rules that the answer will be judged by.
        device: "cpu" or "cuda:N".
        backend: the kernel language that is wanted, or "auto" for any that the device has.
        options: what it holds beside that.

    Raises:
        UsageError: examples are wanted in a language that has none.
    """
    options = options or PromptOptions()
    kind = "cpu" if device.split(":")[0] == "cpu" else "cuda"
    blind = options.view == "blind"
    source = problem.source_for(device)
    return render(
        "single_turn.j2",
        problem=problem,
        source=_without_inputs(source) if blind else source,
        blind=blind,
        protocol=protocol,
        kind=kind,
        backend=backend,
        examples=_examples(problem, kind, backend, options.shots, device),
        facts=options.hardware,
        registers=REGISTERS,
        concepts=options.concepts,
    )


def nearest_example(problem: Problem) -> str:
    """Which of `EXAMPLES` is nearest to the problem's category, as its operators show it."""
    names = _names(problem.source)
    if names & _PRODUCTS or "@" in names:
        return "attention" if names & _ATTENTION else "matmul"
    return "elementwise"


@dataclass(frozen=True)
class _Example:
    title: str
    reference: str
    answer: str


def _examples(problem: Problem, kind: str, backend: str, shots: Shots, device: str) -> tuple[_Example, ...]:
    if shots == "zero":
        return ()
    wanted = tuple(EXAMPLES) if shots == "few" else (nearest_example(problem),)
    language = {"cpu": "cpp", "cuda": "cuda"}[kind] if backend == "auto" else backend
    return tuple(_read_example(name, language, device) for name in wanted)


@cache
def _read_example(name: str, language: str, device: str) -> _Example:
    folder = Path(kbenv.prompts.__file__).parent / "examples" / name
    path = folder / f"{language}.py"
    if not path.is_file():
        have = sorted(other.stem for other in folder.glob("*.py") if other.stem != "reference")
        raise UsageError(f"there are no examples in {language!r}; choose --shots zero, or one of {', '.join(have)}")
    reference = file.read(folder / "reference.py", id=name, name=name, level=None)
    return _Example(EXAMPLES[name], reference.source_for(device), path.read_text(encoding="utf-8"))


def _without_inputs(source: str) -> str:
    """The source without its function `get_inputs`; sizes, which are constants of the module, stay."""
    lines = source.split("\n")
    for node in reversed(parse_source(source).body):
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            last = node.end_lineno or node.lineno
            while last < len(lines) and not lines[last].strip():
                last += 1
            del lines[first:last]
    return "\n".join(lines)


def _names(source: str) -> set[str]:
    """Every name and attribute that the source reads, and "@" for a product."""
    names: set[str] = set()
    for node in ast.walk(parse_source(source)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            names.add("@")
    return names
