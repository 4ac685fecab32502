"""A stand-in for the class `at::Tensor` with the methods that a source may call, and for the headers of operators.

PyTorch's own declares and defines some six hundred methods, each by an operator of its own, and the header of one
operator brings in what all of them may need: three quarters of what a compiler reads for a small kernel. The class has
the same layout and the same symbols; what is left out and called all the same is an error, after which the real headers
are tried.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from dataclasses import dataclass

_DEFINITION = re.compile(
    r"^// aten::(?P<operator>\w+)[^\n]*\ninline [^\n]*?\bTensor::(?P<method>\w+)\([^\n]*\n    [^\n]*\n\}\n",
    re.MULTILINE,
)
_DECLARATION = re.compile(r"^  (?! )[^(\n]*?[ &](?P<method>\w+)\([^\n]*\)(?: const)?(?: &)?;\n", re.MULTILINE)
_OPERATOR = re.compile(r"#include <ATen/ops/(\w+)_ops\.h>\n")
_LARGE = re.compile(r"#include <ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode)\.h>\n")
_ALL_FUNCTIONS = re.compile(r"#ifndef AT_PER_OPERATOR_HEADERS\n.*?#endif\n", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")
_WORD = re.compile(r"\w+")
CLASS, OPERATORS, ARITHMETIC = "ATen/core/TensorBody.h", "ATen/MethodOperators.h", "ATen/TensorOperators.h"


def slim_tensor(words: frozenset[str], include: str) -> dict[str, str] | None:
    """Path -> text of the stand-ins; None where PyTorch's headers are not as this one knows them.

    Args:
        words: all that a source says: what it does not is not there.
        include: PyTorch's include folder.
    """
    try:
        real = _read(include)
    except OSError:
        return None
    if not real.methods or real.unknown & words:
        return None
    kept = {name for name in real.methods if name in words} | real.always
    operators = {operator for name in kept for operator in real.methods[name]}

    def in_class(match: re.Match[str]) -> str:
        name = match["method"]
        return "" if name in real.methods and name not in kept else match[0]

    text = _DECLARATION.sub(in_class, real.text)
    text = _DEFINITION.sub(lambda match: match[0] if match["method"] in kept else "", text)
    includes = _OPERATOR.sub(lambda match: match[0] if match[1] in operators else "", real.operators)
    arithmetic = _ALL_FUNCTIONS.sub("#include <ATen/ops/empty_like.h>\n", real.arithmetic)
    return {CLASS: text, OPERATORS: includes, ARITHMETIC: arithmetic}


def slim_operator(name: str, include: str) -> str:
    """The text of the header of one operator's functions without what it does not need."""
    with open(os.path.join(include, "ATen", "ops", f"{name}.h"), encoding="utf-8") as file:
        return _LARGE.sub("", file.read())


@dataclass(frozen=True)
class _Real:
    """`methods`: by name the operators that its overloads call; `always`: those that stay whatever a source says;
    `unknown`: those that stay nowhere, since it is not known where their operators are."""

    text: str
    operators: str
    arithmetic: str
    methods: dict[str, frozenset[str]]
    always: frozenset[str]
    unknown: frozenset[str]


@functools.cache
def _read(include: str) -> _Real:
    texts = []
    for path in (CLASS, OPERATORS, ARITHMETIC):
        with open(os.path.join(include, path), encoding="utf-8") as file:
            texts.append(file.read())
    text, operators, arithmetic = texts
    listed = set(_OPERATOR.findall(operators))
    defined, methods = Counter[str](), dict[str, frozenset[str]]()
    for match in _DEFINITION.finditer(text):
        method, operator = match["method"], match["operator"]
        forms = (operator, operator.removesuffix("_"), operator.strip("_"))
        found = next((form for form in forms if form in listed), None)
        methods[method] = methods.get(method, frozenset()) | {found or ""}
        defined[method] += 1
    unknown = frozenset(method for method, operators_of in methods.items() if "" in operators_of)
    declared = Counter(match["method"] for match in _DECLARATION.finditer(text))
    odd = {method for method in methods if declared[method] != defined[method]}  # others of that name stand elsewhere
    rest = _DEFINITION.sub("", _DECLARATION.sub(lambda m: "" if m["method"] in methods else m[0], text))
    named = set(_WORD.findall(_COMMENT.sub("", rest + arithmetic)))
    return _Real(text, operators, arithmetic, methods, frozenset((odd | named) & methods.keys() - unknown), unknown)
