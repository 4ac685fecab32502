"""Stand-ins for PyTorch's largest headers: what a source evidently needs of them, and no more.

Each phase of nvcc parses every header again, and so does each C++ source. The stand-ins for `torch/extension.h`,
`torch/types.h`, `torch/all.h`, `ATen/ATen.h` and `ATen/cuda/CUDAContext.h` include a part of what the real ones do,
with the operators that the source names, and nothing that the real ones lack; for nvcc a tensor has the methods that
it names (`slim_tensor`). A source that does not compile with them is compiled with the real ones, and what is said then
counts; one that evidently needs those is not tried.
"""

from __future__ import annotations

import functools
import os
import re

from .slim_tensor import ARITHMETIC, slim_operator, slim_tensor

_INCLUDED = re.compile(r"#\s*include\s*[<\"](?:torch/(?:extension|types|all)|ATen/ATen)\.h[>\"]")
_EXTENSION = re.compile(r"#\s*include\s*[<\"]torch/extension\.h[>\"]")
_NEEDS_ALL = re.compile(
    r"\bTHP\w+|TORCH_LIBRARY|torch::(?:nn|optim|autograd|jit|data|indexing|serialize|python|cuda|fft|linalg|special"
    r"|sparse|nested|Library|tensor)\b|requires_grad|#\s*include\s*[<\"]torch/(?!extension\.h|types\.h|all\.h)"
    r"|\bRegisterOperators\b|__has_include"
    # Of a macro that a stand-in lacks a condition says no, which is no error.
    r"|#\s*(?:el)?if[^\n]*\b(?:(?:AT|C10|CAFFE2|PY|Py)_\w|TORCH_(?!VERSION_|EXTENSION_NAME\b))"
    # A name of the source's own is ambiguous then with any of PyTorch's.
    r"|\busing\s+namespace\s+(?:::\s*)?(?:torch|at|c10)\b"
)
# Functions of a tensor, or overloads of them, that stand elsewhere than in an operator's header: without them a call of
# the source's own function of that name is not ambiguous, and `torch::var(x, 1)` is another overload.
_NEEDS_FUNCTIONS = re.compile(
    r"(?<![\w.>])(?<!std::)(?:(?:var|std)(?:_mean)?|numel|size|stride|conj|_is_zerotensor"
    r"|is_(?:complex|floating_point|signed|inference|conj|neg)|print|_?sum_to|infer_size"
    r"|expand_(?:size|inplace|outplace)|are_expandable|is_expandable_to|check_(?:defined|dim_size|intlist)|maybe_data_ptr"
    r"|geometry_is_contiguous|has_internal_overlap|get_overlap_status|assert_no_(?:(?:internal|partial)_)?overlap)\s*\("
)
_NEEDS_PYTHON = re.compile(r"\bpy(?:bind11)?::|PYBIND11|\bPy[A-Z]\w+|wrap_pybind_function")
_NEEDS_CONTEXT = re.compile(r"\bAT_CU|\bTORCH_CU|\bglobalContext\b|Generator\b")
_NAMED = re.compile(r"\b(?:torch|at)\s*::\s*(\w+)")
_CALLED = re.compile(r"(?<![\w.>])(\w+)\s*(?=\()")
_FORM = re.compile(r"_(?:outf?)?$")
"""What `relu_` and `relu_out` have beyond the name of their operator, in whose header they are."""
_LOGS = re.compile(r"\b(?:D?(?:CHECK|LOG)|VLOG|V?LOG_IF)\b")
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NEEDS_METHODS = re.compile(
    r"\b(?:Optional)?DeviceGuard\b|\bdevice_of\b|scalar_(?:to_)?tensor|TensorIterator|IValue|IListRef"
    r"|#\s*include\s*[<\"]ATen/(?!ATen\.h|Dispatch\.h|Parallel\.h|core/Tensor\.h|cuda/CUDAContext(?:Light)?\.h"
    r"|cuda/Exceptions\.h)"
)
_WORD = re.compile(r"\w+")
_LARGE = """#include <ATen/DeviceGuard.h>
#include <ATen/ScalarOps.h>
"""
_TENSORS = """#include <ATen/core/Tensor.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <c10/util/Load.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>
"""
_TYPES = """namespace torch {
using namespace at;
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8;
constexpr auto kI8 = kInt8;
constexpr auto kI16 = kInt16;
constexpr auto kI32 = kInt32;
constexpr auto kI64 = kInt64;
constexpr auto kF16 = kFloat16;
constexpr auto kF32 = kFloat32;
constexpr auto kF64 = kFloat64;
} // namespace torch
"""
_PYTHON = """#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
"""
_CUDA_CONTEXT = """#pragma once
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Logging.h>
"""
_ALIAS = "#include <kbenv/prelude.h>\n#include <kbenv/operators.h>\n"
_VERSION = "#include <torch/version.h>\n"
"""Without it `#if TORCH_VERSION_MAJOR >= 2` would be no error, and false."""
PRELUDE = "kbenv/prelude.h"
"""The stand-in that is the same for all C++ sources with `torch/extension.h`."""


def slim_headers(source: str, include: str, *, cuda: bool) -> dict[str, str] | None:
    """Path -> text of the stand-ins for one source, in a folder of its own; None where it needs the real ones.

    Args:
        include: PyTorch's include folder.
        cuda: whether nvcc compiles it: then bindings to Python, which it should be spared, need the real ones.
    """
    code = _COMMENT.sub(" ", source)
    if not _INCLUDED.search(code) or _NEEDS_ALL.search(code) or (cuda and _NEEDS_PYTHON.search(code)):
        return None
    if _NEEDS_FUNCTIONS.search(_STRING.sub("", code)):  # "must have size (N, 3)" is no call
        return None
    # Called without a namespace, too: a tensor among the arguments makes PyTorch's function one of those meant, which
    # the source's own of that name may be ambiguous with.
    said = {*_NAMED.findall(code), *_CALLED.findall(code)}
    named = sorted({*said, *(_FORM.sub("", name) for name in said)} & _operators(include))
    operators = "".join(f"#include <ATen/ops/{name}.h>\n" for name in named)
    if _LOGS.search(code):  # the source's own function or condition of that name meets a macro
        operators += "#include <c10/util/Logging.h>\n"
    headers = {"ATen/cuda/CUDAContext.h": _CUDA_CONTEXT} if cuda and not _NEEDS_CONTEXT.search(code) else {}
    large, python = _LARGE, not cuda and _EXTENSION.search(code)  # of PyTorch's own that one alone brings Python's
    if cuda and not _NEEDS_METHODS.search(code):
        tensor = slim_tensor(frozenset(_WORD.findall(code)), include)
        if tensor is not None:
            headers |= tensor | {f"ATen/ops/{name}.h": slim_operator(name, include) for name in (*named, "empty_like")}
            large = f"#include <{ARITHMETIC}>\n"
    return headers | {
        PRELUDE: prelude() if python else _guarded("KBENV_PRELUDE", _tensors(large) + _TYPES),
        "kbenv/tensors.h": _tensors(large),
        "kbenv/operators.h": operators,
        "ATen/ATen.h": "#include <kbenv/tensors.h>\n#include <kbenv/operators.h>\n",
        "torch/types.h": _ALIAS,
        "torch/all.h": _ALIAS + _VERSION,
        "torch/extension.h": _ALIAS + _VERSION,
    }


def prelude() -> str:
    """The text of `PRELUDE` for C++ with `torch/extension.h`; it needs nothing but PyTorch's own headers."""
    return _guarded("KBENV_PRELUDE", _tensors(_LARGE) + _TYPES + _PYTHON)


def _tensors(more: str) -> str:
    return _guarded("KBENV_TENSORS", more + _TENSORS)


def _guarded(name: str, text: str) -> str:
    """Not by `#pragma once`, which tells files apart by their age, too: a precompiled one is older."""
    return f"#ifndef {name}\n#define {name}\n{text}#endif\n"


@functools.cache
def _operators(include: str) -> frozenset[str]:
    """Names with a header of their own."""
    try:
        return frozenset(name.removesuffix(".h") for name in os.listdir(os.path.join(include, "ATen", "ops")))
    except OSError:
        return frozenset()
