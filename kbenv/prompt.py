"""The prompt of a problem: what a model reads before its first answer. The text itself lives in `prompts/`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import kbenv.prompts
from kbenv.backends import AUTO, Backend, backend_names, backends_for, find_backend
from kbenv.case import split
from kbenv.errors import UsageError
from kbenv.gpu import REGISTERS, Facts
from kbenv.problems.loaders import file
from kbenv.problems.problem import Problem, View, parse_source
from kbenv.prompts import render
from kbenv.protocol import Protocol

Shots = Literal["zero", "one", "few"]
SHOTS: tuple[Shots, ...] = ("zero", "one", "few")

EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "elementwise": "Element-wise operations in one pass",
        "matmul": "A product in tiles",
        "attention": "Attention without a matrix of scores",
    }
)
"""The worked examples under `prompts/examples`, each with a reference and an answer in every language that has one."""

EXAMPLE_LANGUAGES = ("cuda", "triton", "cuda_raw", "cpp", "c")
"""Those of the examples: where an answer may be in several, the first is shown, since most models know it best."""

_FOLDER = Path(kbenv.prompts.__file__).parent / "examples"
_CATEGORIES = {
    "attention": ("attention",),
    "matmul": ("matmul", "convolution", "conv", "gemm", "linear", "recurrent", "product"),
    "elementwise": ("activation", "elementwise", "element-wise", "normali", "reduction", "loss", "pooling", "index",
                    "optimiser", "optimizer", "resize", "scatter", "layout"),
}  # fmt: skip
"""Words of categories that say which example is nearest; "fusion" and "architecture" do not."""
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
    backend: str = AUTO,
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
        UsageError: there is no such language, or examples are wanted in one that has none.
    """
    options = options or PromptOptions()
    languages = _languages(problem, backend, device)
    return render(
        "single_turn.j2",
        problem=problem,
        source=problem.source_shown(device, options.view),
        blind=(options.view or problem.view) == "blind",
        cases=_cases(problem, protocol),
        hidden_cases=problem.case is None and any(case.role == "hidden" for case in problem.cases),
        writes=problem.contract.in_place,
        rule=problem.contract.comparator,
        protocol=protocol.judging(problem.contract.comparator),
        kind="cpu" if device.split(":")[0] == "cpu" else "cuda",
        languages=languages,
        examples=_examples(problem, [language.name for language in languages], options.shots, device),
        facts=options.hardware,
        registers=REGISTERS,
        concepts=options.concepts,
    )


def _cases(problem: Problem, protocol: Protocol) -> list[Mapping[str, object]]:
    """Those that are judged and may be shown, where there are several: name, settings, whether it is timed."""
    if problem.case is not None or len(problem.cases) < 2:
        return []
    shown = [case for case, _ in split(problem, protocol.precision)[0] if case.role != "hidden"]
    return [
        {
            "name": case.name, "timed": case.role == "perf",
            "settings": ", ".join(f"{name} = {value!r}" for name, value in case.constants.items()),
        }
        for case in shown
    ]  # fmt: skip


def nearest_example(problem: Problem) -> str:
    """Which of `EXAMPLES` is nearest to the problem's category or, where that says little, to its operators."""
    for name, words in _CATEGORIES.items():
        if problem.category is not None and any(word in problem.category.lower() for word in words):
            return name
    names = _names(problem.source)
    if names & _PRODUCTS or "@" in names:
        return "attention" if names & _ATTENTION else "matmul"
    return "elementwise"


def _languages(problem: Problem, backend: str, device: str) -> tuple[Backend, ...]:
    """Those of the device that the problem's set admits; where it admits none of them, what it admits."""
    if backend == AUTO:
        admitted = [find_backend(name) for name in problem.contract.backends or backend_names()]
        every = tuple(language for language in admitted if language is not None)
        return tuple(language for language in backends_for(device) if language in every) or every
    known = find_backend(backend)
    if known is None:
        raise UsageError(f"backend must be one of {', '.join((AUTO, *backend_names()))}; found {backend!r}")
    return (known,)


@dataclass(frozen=True)
class _Example:
    title: str
    reference: str
    answer: str


def _examples(problem: Problem, languages: Sequence[str], shots: Shots, device: str) -> tuple[_Example, ...]:
    if shots == "zero":
        return ()
    wanted = tuple(EXAMPLES) if shots == "few" else (nearest_example(problem),)
    language = next((name for name in EXAMPLE_LANGUAGES if name in languages), None)
    if language is None:
        raise UsageError(
            f"there are no examples in {' or '.join(languages) or 'that language'}; choose --shots zero, or a backend "
            f"of {', '.join(sorted(EXAMPLE_LANGUAGES))}"
        )
    return tuple(_read_example(name, language, device) for name in wanted)


@cache
def _read_example(name: str, language: str, device: str) -> _Example:
    reference = file.read(_FOLDER / name / "reference.py", id=name, name=name, level=None)
    answer = (_FOLDER / name / f"{language}.py").read_text(encoding="utf-8")
    return _Example(EXAMPLES[name], reference.source_for(device), answer)


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
