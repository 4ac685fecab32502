"""Which functions write into their arguments through Triton kernels, read from their source.

A kernel writes through the parameters to which offsets are added for a `store` or an atomic operation; a function
writes into a parameter that it hands, itself or a view of it, to a kernel or function that writes there. Not seen:
tensors in tuples, and what is launched by another name than its own. Too much is said where an offset that is a
parameter is added as it is, or where a parameter is bound anew.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_VIEWS = {
    "contiguous", "data", "detach", "expand", "flatten", "mT", "movedim", "narrow", "permute", "reshape", "select",
    "squeeze", "T", "t", "transpose", "unflatten", "unsqueeze", "view", "view_as",
}  # fmt: skip
"""Methods and attributes of a tensor that are it, seen otherwise, or may be."""
_VIEWING = {"reinterpret", "view_as_real"}
"""Functions that return a view of their first argument."""


@dataclass
class _Function:
    node: ast.FunctionDef
    parameters: list[str]
    is_kernel: bool
    values: dict[str, list[ast.expr]]
    """What is assigned to its local names."""
    written: set[str] = field(default_factory=set)
    """Of its parameters."""


def is_kernel(function: ast.stmt) -> bool:
    """Whether a statement defines a kernel, or a function of kernels."""
    decorators = function.decorator_list if isinstance(function, ast.FunctionDef) else []
    return any(ast.unparse(decorator).partition("(")[0] in ("triton.jit", "jit") for decorator in decorators)


def writes_by_kernels(module: ast.Module, names: list[str]) -> bool:
    """Whether one of the functions that `names` stand for in `module` writes into an argument by a kernel.

    One whose definition is not found does where any function does.
    """
    functions = _functions(module)
    aliases = {name: value for name, values in _values(module.body).items() for value in values}
    changed = True
    while changed:
        changed = False
        for function in (function for several in functions.values() for function in several):
            found = _written(function, functions, aliases) - function.written
            function.written |= found
            changed = changed or bool(found)
    hosts = [function for several in functions.values() for function in several if not function.is_kernel]
    called = [_called(ast.Name(name), functions, aliases) or hosts for name in names]
    return any(function.written for several in called for function in several)


def _functions(module: ast.Module) -> dict[str, list[_Function]]:
    """By name, several where there are; a class stands for its `forward`, without the first parameter."""
    found: dict[str, list[_Function]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(_function(node))
        elif isinstance(node, ast.ClassDef):
            forwards = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"]
            found.setdefault(node.name, []).extend(_function(item, first=1) for item in forwards)
    return found


def _function(node: ast.FunctionDef, first: int = 0) -> _Function:
    arguments = node.args
    parameters = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return _Function(node, parameters[first:], is_kernel(node), _values(node.body))


def _values(body: list[ast.stmt]) -> dict[str, list[ast.expr]]:
    """What is assigned to plain names, in a tuple too, anywhere in `body`."""
    found: dict[str, list[ast.expr]] = {}
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        assert node.value is not None
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, []).append(node.value)
    return found


def _written(
    function: _Function, functions: dict[str, list[_Function]], aliases: dict[str, ast.expr]
) -> set[str]:  # fmt: skip
    """The parameters that a function writes into, as far as what it calls is known."""
    found: set[str] = set()
    for call in (node for node in ast.walk(function.node) if isinstance(node, ast.Call)):
        if function.is_kernel and isinstance(call.func, ast.Attribute) and _stores(call.func.attr):
            pointer = [word.value for word in call.keywords if word.arg == "pointer"] or call.args[:1]
            for expression in (call.func.value, *pointer):  # a descriptor has `store` as a method
                found |= _sources(function, expression)
        for callee in _called(call.func, functions, aliases):
            for argument, parameter in _bound(call, callee):
                if parameter in callee.written:
                    found |= _sources(function, argument)
    return found & set(function.parameters)


def _stores(name: str) -> bool:
    return name == "store" or name.startswith("atomic_")


def _called(
    called: ast.expr, functions: dict[str, list[_Function]], aliases: dict[str, ast.expr]
) -> list[_Function]:  # fmt: skip
    """What `f(...)`, `kernel[grid](...)` or `Function.apply(...)` calls."""
    if isinstance(called, ast.Subscript) or (isinstance(called, ast.Attribute) and called.attr == "apply"):
        called = called.value
    if not isinstance(called, ast.Name):
        return []
    if called.id in functions:
        return functions[called.id]
    rest = {name: value for name, value in aliases.items() if name != called.id}
    return _called(aliases[called.id], functions, rest) if called.id in aliases else []


def _bound(call: ast.Call, callee: _Function) -> Iterator[tuple[ast.expr, str]]:
    """Arguments with the parameters that take them, up to a starred one."""
    for argument, parameter in zip(call.args, callee.parameters, strict=False):
        if isinstance(argument, ast.Starred):
            break
        yield argument, parameter
    yield from ((word.value, word.arg) for word in call.keywords if word.arg is not None)


def _sources(function: _Function, expression: ast.expr) -> set[str]:
    """The names that an argument is, or is a view of, or (in a kernel) a pointer into."""
    names, found = _pointers if function.is_kernel else _viewed, set()
    waiting = list(names(expression))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [source for value in function.values.get(name, []) for source in names(value)]
    return found


def _pointers(expression: ast.expr) -> Iterator[str]:
    """The names that may be pointers: what is added, and the first argument (`base`) of what makes one of another."""
    if isinstance(expression, ast.BinOp):
        if isinstance(expression.op, ast.Add | ast.Sub):
            yield from (*_pointers(expression.left), *_pointers(expression.right))
    elif isinstance(expression, ast.Call):
        if isinstance(expression.func, ast.Attribute):
            if expression.func.attr == "load":
                return
            yield from _pointers(expression.func.value)
        for argument in (*expression.args[:1], *(word.value for word in expression.keywords if word.arg == "base")):
            yield from _pointers(argument)
    elif isinstance(expression, ast.Attribute | ast.Subscript):
        yield from _pointers(expression.value)
    else:
        yield from _chosen(expression, _pointers)


def _viewed(expression: ast.expr) -> Iterator[str]:
    """The names of which it is a view, or which it is."""
    if isinstance(expression, ast.Subscript):
        yield from _viewed(expression.value)
    elif isinstance(expression, ast.Call):
        if isinstance(expression.func, ast.Attribute):  # no plain function's result
            viewing = expression.func.attr in _VIEWING and expression.args
            yield from _viewed(expression.args[0] if viewing else expression.func)
    elif isinstance(expression, ast.Attribute):
        if expression.attr in _VIEWS:
            yield from _viewed(expression.value)
    else:
        yield from _chosen(expression, _viewed)


def _chosen(expression: ast.expr, names: Callable[[ast.expr], Iterator[str]]) -> Iterator[str]:
    """Those of a name, or of what `if` or `or` may choose."""
    if isinstance(expression, ast.Name):
        yield expression.id
    elif isinstance(expression, ast.IfExp):
        yield from (*names(expression.body), *names(expression.orelse))
    elif isinstance(expression, ast.BoolOp):
        yield from (name for value in expression.values for name in names(value))
