"""What forward keeps, branches on and returns, as far as its text tells. For `kbenv.screen`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from kbenv.screen_source import Code, Found, Function, is_self, word_of

_WEIGHTS = frozenset({"weight", "bias", "gamma", "beta", "running_mean", "running_var", "scale", "shift"})
_TO_HOST = frozenset({"item", "tolist", "all", "any", "equal", "allclose", "isclose", "is_nonzero", "count_nonzero"})


def _find_caches(code: Code) -> Iterator[Found]:
    for function in code.functions:
        names: dict[str, tuple[str, ast.AST]] = {}
        for node in code.walk(function):
            if isinstance(node, ast.Assign) and (key := _identity_in(code, node.value)):
                names.update({target.id: key for target in node.targets if isinstance(target, ast.Name)})
        for used in _keys(code, function):
            key = _identity_in(code, used) or next(
                (names[n.id] for n in code.walk(used) if isinstance(n, ast.Name) and n.id in names), None
            )
            if key is not None:
                rule, node = key
                yield Found(rule, node, f"{code.text_of(node)}: something is looked up by it")


def _keys(code: Code, function: Function) -> Iterator[ast.expr]:
    """Expressions that something is looked up by, or compared with what was kept."""
    for node in code.walk(function):
        match node:
            case ast.Subscript(slice=key):
                yield key
            case ast.Compare(left=left, ops=ops, comparators=others):
                if isinstance(ops[0], ast.In | ast.NotIn):
                    yield left
                elif any(isinstance(side, ast.Attribute) and is_self(side.value) for side in (left, *others)):
                    yield from (left, *others)
            case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop"), args=[key, *_]):
                yield key


def _identity_in(code: Code, node: ast.AST) -> tuple[str, ast.AST] | None:
    """By what an expression tells tensors apart: where they are, or what they hold."""
    for part in code.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(attr="data_ptr")) | ast.Call(func=ast.Name(id="id")):
                return "cache-by-identity", part
            case ast.Attribute(attr="_version"):
                return "cache-by-identity", part
            case ast.Call(func=ast.Attribute(attr="tobytes" | "tolist")) | ast.Call(func=ast.Name(id="hash" | "float")):
                return "cache-by-content", part
    return None


def _find_counters(code: Code) -> Iterator[Found]:
    compared = {
        part.attr
        for node in code.nodes
        if isinstance(node, ast.Compare)
        for part in code.walk(node)
        if isinstance(part, ast.Attribute)
    }
    for node in code.nodes:
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name), value=ast.Constant()) if name in compared:
                yield Found("call-counter", node, f"{code.text_of(node)}: counts, and something depends on the count")


def _find_branches_on_data(code: Code) -> Iterator[Found]:
    for function in code.functions:
        if function.name == "__init__":
            continue
        for node in code.walk(function):
            if isinstance(node, ast.If | ast.IfExp | ast.While) and (part := _reads_values(code, node.test)):
                weights = any(isinstance(p, ast.Attribute) and p.attr in _WEIGHTS for p in code.walk(node.test))
                rule, words = ("weights-inspected", "weights") if weights else ("content-dispatch", "values")
                yield Found(rule, part, f"{code.text_of(part)}: a branch on {words}")
    for target, value in code.assignments():
        part = _reads_values(code, value)
        if part and any(isinstance(p, ast.Attribute) and p.attr in _WEIGHTS for p in code.walk(value)):
            yield Found("weights-inspected", part, f"{code.text_of(target)} is found out from weights")


def _reads_values(code: Code, node: ast.AST) -> ast.AST | None:
    """The part of an expression that brings a tensor's values to the host."""
    for call in code.calls(node):
        match call.func:
            case ast.Attribute(attr=name) if name in _TO_HOST:
                return call
            case ast.Name(id="float" | "bool") if any(isinstance(arg, ast.Call | ast.Subscript) for arg in call.args):
                return call
    return None


def _find_returns(code: Code) -> Iterator[Found]:
    for function in code.functions:
        if function.name not in ("forward", "__call__"):
            continue
        given = {a.arg for a in (*function.args.posonlyargs, *function.args.args)} - {"self"}
        nodes = list(code.walk(function))
        kept = given - {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in nodes:
            match node:
                case ast.Return(value=ast.Name(id=name)) if name in kept:
                    yield Found("input-returned", node, f"{name}: the input itself is returned")
                case ast.Return(value=ast.Attribute(value=owner)) if not code.is_imported(owner):
                    yield Found("kept-output", node, f"{code.text_of(node)}: what an earlier call may have left")
                case ast.Return(value=ast.Subscript(value=ast.Attribute())):
                    yield Found("kept-output", node, f"{code.text_of(node)}: what an earlier call may have left")
                case ast.Return(value=ast.Call() as call):
                    yield from _find_in_returned(code, node, call)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in kept:
                    if method.endswith("_") and not method.startswith("_") and method != "requires_grad_":
                        yield Found("input-mutation", node, f"{code.text_of(node)}: the input is written to")
                case ast.Call(func=ast.Attribute() as called, args=[ast.Name(id=name), *_]) if name in kept:
                    if re.fullmatch(r"torch\.(?:nn\.functional\.)?[a-z]\w*_", code.name_of(called)):
                        yield Found("input-mutation", node, f"{code.text_of(node)}: the input is written to")


def _find_in_returned(code: Code, node: ast.Return, call: ast.Call) -> Iterator[Found]:
    last = word_of(call.func)
    if last in ("empty", "empty_like", "new_empty", "empty_strided"):
        yield Found("uninitialised-output", node, f"{code.text_of(node)}: memory as it was found")
    elif last in ("zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_full", "expand"):
        yield Found("constant-output", node, f"{code.text_of(node)}: one value for all elements")


def _find_endless_loops(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            inside = [part for child in node.body for part in code.walk(child)]
            if not any(isinstance(part, ast.Break | ast.Return | ast.Raise) for part in inside):
                yield Found("endless-loop", node.test, "a loop without an end")


def _find_streams(code: Code) -> Iterator[Found]:
    """A stream that nobody waits for: `wait_stream` of something else waits for the other one."""
    if any(
        isinstance(call.func, ast.Attribute)
        and (call.func.attr in ("wait_event", "record_event") or code.name_of(call.func) == "torch.cuda.synchronize")
        for call in code.calls()
    ):
        return
    waited = {
        code.name_of(call.args[0])
        for call in code.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "wait_stream" and call.args
    } | {
        code.name_of(call.func.value)
        for call in code.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "synchronize"
    }
    held = {id(value): code.name_of(target) for target, value in code.assignments()}
    for call in code.calls():
        if code.name_of(call.func) in ("torch.cuda.Stream", "torch.Stream") and held.get(id(call)) not in waited - {""}:
            yield Found("stream-unjoined", call, f"{code.text_of(call)}: a stream that nothing waits for")


RULES: tuple[Callable[[Code], Iterable[Found]], ...] = (
    _find_caches, _find_counters, _find_branches_on_data, _find_returns, _find_endless_loops, _find_streams,
)  # fmt: skip
