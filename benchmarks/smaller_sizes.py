"""A problem with smaller sizes, to run it where it is too large: `problem_sets.py`."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kbenv.problems import Problem
from kbenv.problems.problem import _put_constants, constant_assignments, parse_source


def smaller(problem: Problem, factor: int, least: int) -> Problem:
    """The problem with batches of at most four, and its constants from `least` on divided by `factor`.

    Whether it still fits together is seen when it runs.
    """

    def shrunk(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shrunk(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(shrunk(name, item) for item in value)
        if type(value) is not int:
            return value
        if "batch" in name.lower():
            return min(value, 4)
        return max(value // factor, least // 8) if value >= least else value

    constants = {}
    for name, statement in constant_assignments(parse_source(problem.source)):
        with contextlib.suppress(ValueError):
            constants[name] = shrunk(name, _value(statement.value))
    source = _CONFIGURATION.sub(lambda match: f"{match[1]}{_few_layers(ast.literal_eval(match[2]))!r})", problem.source)
    case = {name: shrunk(name, value) for name, value in problem._case_constants().items()}
    cases = tuple(replace(one, constants=case) if one.name == problem.case else one for one in problem.cases)
    return replace(problem, source=_put_constants(source, constants), cases=cases)


_CONFIGURATION = re.compile(r"(AutoConfig\.for_model\(\*\*)({.*})\)")
_LAYERS = {"num_hidden_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "n_layer": 2}


def _few_layers(configuration: dict[str, Any]) -> dict[str, Any]:
    """A published model's configuration with two layers of each kind."""
    few = configuration | {name: value for name, value in _LAYERS.items() if name in configuration}
    if configuration.get("model_type") == "gpt2":
        few["n_layer"] = 2
    if "attention_types" in few:
        few["attention_types"] = [[kinds, 1] for kinds, _ in few["attention_types"]]
    if "attn_layers" in few:
        few["attn_layers"] = ["local", "lsh"]
    return few


def _value(node: ast.expr | None) -> Any:
    """Of a literal, or of numbers multiplied, added, subtracted. Raises ValueError: it is neither."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if type(left) is int and type(right) is int:
            return _OPERATORS[type(node.op)](left, right)
        raise ValueError("no numbers")
    try:
        return ast.literal_eval(node) if node is not None else None
    except (TypeError, SyntaxError) as e:
        raise ValueError("not a literal") from e


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
