"""What kind of computation a problem is: read off its source, for tables. It decides nothing.

The category is the heaviest kind that `Model` names; a matrix product followed by activations is a matrix product.
"""

from __future__ import annotations

import ast
import re

from kbenv.problems.problem import parse_source

_KINDS = (
    ("attention", re.compile(r"MultiheadAttention|scaled_dot_product_attention|\w*Attention\w*|Transformer\w*")),
    ("recurrent", re.compile(r"LSTM(Cell)?|GRU(Cell)?|RNN(Cell)?")),
    ("convolution", re.compile(r"(Lazy)?Conv(Transpose)?[123]d|conv(_transpose)?[123]d")),
    ("matrix product", re.compile(r"(Bi)?[lL]inear|b?mm|matmul|einsum|addmm|baddbmm|mv|MatMult")),
    ("loss", re.compile(r"\w*Loss|cross_entropy|kl_div|mse_loss|smooth_l1_loss|\w+_loss")),
    ("normalisation", re.compile(r"\w*Norm([123]d)?|(batch|layer|group|instance|rms)_norm|norm|normalize")),
    ("pooling", re.compile(r"\w*Pool[123]d|\w+_pool[123]d")),
    ("scan", re.compile(r"cumsum|cumprod|logcumsumexp|cummax")),
    ("softmax", re.compile(r"(Log)?Softmax|(log_)?softmax|logsumexp")),
    ("reduction", re.compile(r"sum|mean|prod|amax|amin|max|min|argmax|argmin|var|std")),
)
_PRODUCTS = frozenset({"matmul", "bmm", "einsum", "MatMult"})
_SOFTMAX = frozenset({"softmax", "Softmax"})
ELEMENTWISE = "element-wise"


def categorise(source: str) -> str | None:
    """The category of the problem with that source; None where it does not parse."""
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = set(_named(tree))
    if names & _PRODUCTS and names & _SOFTMAX:
        return "attention"  # written out
    for kind, pattern in _KINDS:
        if any(pattern.fullmatch(name) for name in names):
            return kind
    return ELEMENTWISE


def _named(tree: ast.Module) -> list[str]:
    """What the classes of the source call, by the last part of the name; "MatMult" for the operator @."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = []
    for node in (inner for outer in classes for inner in ast.walk(outer)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names.append(node.func.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names.append(node.func.id)
        elif isinstance(node, ast.BinOp):
            names.append(type(node.op).__name__)
    return names
