"""Text for sources that loaders write around other sets' references: every loader makes plain KernelBench-format files.

The text runs inside a sandbox and knows nothing of kbenv.
"""

from __future__ import annotations

import ast
import re

from kbenv.problems.problem import Dtype

_SEEDS = re.compile(
    r"(?:torch\.(?:cuda\.)?(?:manual_seed|manual_seed_all|synchronize)|(?:np\.|numpy\.)?random\.seed|set_seed)\("
)

UNPACK = '''
def _unpacked(value):
    """The value with what cannot travel as data put back: dtypes and devices come by name."""
    if isinstance(value, dict):
        if set(value) == {"__torch__"}:
            return getattr(torch, value["__torch__"])
        if set(value) == {"__device__"}:
            return torch.get_default_device()
        return {key: _unpacked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unpacked(item) for item in value)
    return value
'''
"""Defines `_unpacked`, the inverse of `PACK`."""

PACK = '''
def _packed(value):
    """The value as data: tensors copied, dtypes and devices by name."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return {"__torch__": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"__device__": "default"}
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_packed(item) for item in value) if type(value) in (list, tuple) else list(value)
    return value
'''
"""Defines `_packed`, which copies a call's arguments as they are when it is made."""

SAME = '''
def _same(a, b):
    """Whether two packed values are the same, NaN for NaN."""
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and bool(torch.all((a == b) | (a != a) & (b != b)))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(item, b[key]) for key, item in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(item, other) for item, other in zip(a, b))
    return True
'''
"""Defines `_same`."""

MODULE = '''
import sys
import types


def _define_module(name, text):
    """A module that the set keeps in a file of its own."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name + ".py", "exec"), module.__dict__)
'''
"""Defines `_define_module`."""


def on_default_device(source: str) -> str:
    """`source` (a whole module) with what it says of the device "cuda" meant of the device in use, and seeds left out.

    Inputs are then drawn where and with which seeds the judge wants them. Comments are lost.

    Raises:
        SyntaxError: it is no Python.
    """
    return ast.unparse(ast.fix_missing_locations(_OnDefaultDevice().visit(ast.parse(source))))


class _OnDefaultDevice(ast.NodeTransformer):
    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        # A default is evaluated once, when no device is in use yet; None is the one in use when it is read.
        node.defaults = [self._default(item) for item in node.defaults]
        node.kw_defaults = [None if item is None else self._default(item) for item in node.kw_defaults]
        return node

    def _default(self, node: ast.expr) -> ast.expr:
        changed: ast.expr = ast.Constant(None) if _is_cuda(node) else self.visit(node)
        return changed

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _default_device() if _is_cuda(node) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func).endswith("autocast"):  # which wants a kind of device
            node.args = [_kind_of_device() if _is_cuda(item) else item for item in node.args]
        for keyword in node.keywords:
            if keyword.arg == "device_type" and _is_cuda(keyword.value):
                keyword.value = _kind_of_device()
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.keywords:
            return ast.Call(ast.Attribute(node.func.value, "to", ast.Load()), [_default_device()], [])
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if _SEEDS.match(ast.unparse(node.value)):
            return ast.Pass()
        self.generic_visit(node)
        return node


def _is_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")


def _default_device() -> ast.expr:
    return ast.parse("torch.get_default_device()", mode="eval").body


def _kind_of_device() -> ast.expr:
    return ast.parse("torch.get_default_device().type", mode="eval").body


def indent(text: str, spaces: int = 4) -> str:
    """Every line that is not blank moved to the right; only for text from `ast.unparse`, whose strings are one line."""
    return "\n".join(" " * spaces + line if line.strip() else line for line in text.split("\n"))


def float_types(text: str) -> set[str]:
    """The floating types that `text` names as attributes of torch."""
    found = re.findall(r"\btorch\.(float32|float64|float16|bfloat16|half|float8_\w+|double|float)\b", text)
    same = {"half": "float16", "double": "float64", "float": "float32"}
    return {same.get(name, name) for name in found}


def precision_of(types: set[str]) -> Dtype:
    """The precision in which a set of floating types is one type, else "mixed"."""
    names: dict[str, Dtype] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    return names.get(next(iter(types)), "mixed") if len(types) == 1 else "mixed"


def written_parameters(tree: ast.Module) -> tuple[int, ...]:
    """Positions of the arguments that `Model.forward` writes into by a method such as `scatter_`, or by index.

    A parameter that is bound anew somewhere is left out: what is written into then may be another tensor.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for function in node.body:
                if isinstance(function, ast.FunctionDef) and function.name == "forward":
                    return _written(function)
    return ()


def _written(forward: ast.FunctionDef) -> tuple[int, ...]:
    names = [argument.arg for argument in forward.args.args[1:]]
    nodes = list(ast.walk(forward))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    methods = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    places: list[ast.expr] = [method.value for method in methods if writes(method.attr)]
    places += [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    written = {place.id for place in places if isinstance(place, ast.Name)}
    return tuple(position for position, name in enumerate(names) if name in written - bound)


def writes(method: str) -> bool:
    """Whether a tensor's method of this name writes into it."""
    return method.endswith("_") and not method.startswith("_") and not method.startswith("requires")
