"""Files of a function and its test: the function, a line of `#`, and a test block that calls it and keeps the results.

The problem's inputs are the calls that the test makes, recorded as it runs (in the sandbox, on the device in use, with
the judge's seeds); its output is what the calls return and, where the functions may write into their arguments, what
these hold afterwards. What a test prints or asserts does not count, nor what it does with the results, such as a
backward pass. Memory that it leaves uninitialised holds zeros: it might hold the right result of an earlier call.
`ModelNew` takes the same calls; a submission may as well define the function itself, and then `ADAPTER` makes the
calls.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.launch import is_kernel, writes_by_kernels
from kbenv.problems.loaders.reduction import MODULE, PACK, SAME, UNPACK, float_types, indent, on_default_device, writes
from kbenv.problems.problem import Contract, Problem, defined_names

_SEPARATOR = re.compile(r"^#{60,}[ \t]*$", re.MULTILINE)
_UNINITIALISED = re.compile(r"(\btorch\.|\.new_)empty(?=(?:_like)?\()")
_CASTS = re.compile(r"\.(?:half|bfloat16|double)\(\)")

_ONE = '''
class {model}(torch.nn.Module):
    """Calls `{name}` once for each call of the set's own test."""

    def forward(self, *calls):
        """Each call is a list of positional arguments and a dict of named ones; returns the results in order."""
        return [{name}(*_unpacked(positional), **_unpacked(named)) for positional, named in calls]
'''
_SEVERAL = '''
class {model}(torch.nn.Module):
    """Makes the calls of the set's own test."""

    def forward(self, *calls):
        """Each call is a function's name, a list of positional arguments and a dict of named ones."""
        functions = {{{table}}}
        return [functions[name](*_unpacked(positional), **_unpacked(named)) for name, positional, named in calls]
'''
_INPUTS = """
def get_inputs():
    calls = []

    def record(name, function):
        def recorded(*positional, **named):
            before = {call}
            result = function(*positional, **named)  # where it raises, as tests of bad arguments do, it is no input
            if {wanted}
                calls.append(before)
            return result

        return recorded

    with torch.enable_grad():
        _test({recorders})
    if not calls:
        raise RuntimeError("every call of the test raises, or {otherwise}")
    return calls


def get_init_inputs():
    return []
"""


_MAKES = '''
def _makes(result, *arguments):
    """Whether a result holds a number, or a tensor in other memory than the arguments'."""
    leaves = torch.utils._pytree.tree_leaves
    given = {item.untyped_storage().data_ptr() for item in leaves(arguments) if isinstance(item, torch.Tensor)}
    return any(
        item.untyped_storage().data_ptr() not in given
        if isinstance(item, torch.Tensor)
        else isinstance(item, (bool, int, float))
        for item in leaves(result)
    )
'''


def is_one(source: str) -> bool:
    """Whether `source` has the separator of this format."""
    return _SEPARATOR.search(source) is not None


def load(
    id: str, path: Path, contract: Contract, modules: dict[str, Path] | None = None, *, keeps_types: bool = False,
    **facts: Any,
) -> Problem:  # fmt: skip
    """The problem in the file at `path`.

    Args:
        contract: what the set asks besides calls of a function; entry and adapter are filled in here.
        modules: modules of the set's own that its tests import, by name.
        keeps_types: whether inputs have the floating types that the test makes them in, where it names others than
            float32 (Triton kernels may take no others); else the precision decides.
        facts: further fields of the problem.

    Raises:
        ProblemNotFoundError: the file cannot be read, has no separator, or its test calls none of its functions.
    """
    text = file.read_text(path)
    match = _SEPARATOR.search(text)
    if match is None:
        raise ProblemNotFoundError(f"{path}: expected a function, a line of #, and a test; found no line of #")
    reference, test = text[: match.start()].rstrip(), text[match.end() :]
    functions = _entries(file.parse(reference, path), file.parse(test, path), path)
    in_place = _writes(file.parse(reference, path), functions)
    mixed = keeps_types and bool(float_types(test) - {"float32"} or _CASTS.search(test))
    call, table = _model_text(functions)
    adapter = UNPACK.lstrip() + "\n" + call.format(model="ModelNew", name=functions[0], table=table)
    imports = (
        "" if "import torch\n" in reference else "import torch  # for what follows, whatever the reference imports"
    )
    model = call.format(model="Model", name=functions[0], table=table)
    shown = "\n\n".join(part.strip("\n") + "\n" for part in (reference, imports, UNPACK, model) if part)
    parts = [
        shown,
        PACK,
        SAME,
        _MAKES if in_place else "",
        *_embedded(modules or {}),
        _test_text(test, functions, path.stem),
        _inputs_text(functions, writes=in_place),
    ]
    return file.from_source(
        "\n".join(part.strip("\n") + "\n\n" for part in parts if part).rstrip() + "\n",
        path=path, id=id, name=path.stem, level=None, shown=_with_stub(shown),
        contract=replace(contract, dtype="mixed" if mixed else contract.dtype, in_place=(-1,) if in_place else (),
                         entry=functions[0], adapter=adapter), **facts,
    )  # fmt: skip


def _entries(reference: ast.Module, test: ast.Module, path: Path) -> list[str]:
    """What the reference binds and the test calls: functions, in the order of their first call."""
    bound = set(defined_names(reference.body)) - {
        alias.asname or alias.name
        for node in reference.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    read = [node.id for node in ast.walk(test) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    found = [name for name in dict.fromkeys(read) if name in bound]
    classes = {node.name for node in reference.body if isinstance(node, ast.ClassDef)}
    if constructed := sorted(classes & set(found)):
        raise ProblemNotFoundError(f"{path}: the test uses the class {constructed[0]}; only functions can be called")
    if not found:
        raise ProblemNotFoundError(f"{path}: the test calls nothing that the file defines before the line of #")
    kernels = {node.name for node in reference.body if isinstance(node, ast.FunctionDef) and is_kernel(node)}
    if not (hosts := [name for name in found if name not in kernels]):
        text = f"{path}: the test launches the kernel {found[0]} itself; only functions can be called"
        raise ProblemNotFoundError(text)
    return hosts


def _model_text(functions: list[str]) -> tuple[str, str]:
    """The template of the model's class, and its table of functions where there are several."""
    return (_ONE if len(functions) == 1 else _SEVERAL), ", ".join(f'"{name}": {name}' for name in functions)


def _test_text(test: str, functions: list[str], own_module: str) -> str:
    """The test as a function of what it calls; what it imports from the file itself or repeats it is given."""
    tree = ast.parse(test)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and node.module == own_module)
        and not (isinstance(node, ast.FunctionDef) and node.name in functions)
    ]
    defining = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.If)
    if all(isinstance(node, defining) for node in tree.body):  # it is called behind the usual `if` alone, or by others
        tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
        tree.body += ast.parse("\n".join(f"{name}()" for name in tests)).body
    body = indent(_UNINITIALISED.sub(r"\1zeros", on_default_device(ast.unparse(tree))))
    return f"def _test({', '.join(functions)}):\n{body}\n"


def _writes(reference: ast.Module, functions: list[str]) -> bool:
    """Whether one of `functions` writes into what may be its caller's.

    It does by a kernel; or the reference has methods such as `add_`, adds to a parameter, normalises with running
    statistics (which training moves), or looks up an embedding with `max_norm` (which scales the rows it reads, where
    they are longer).
    """
    if writes_by_kernels(reference, functions):
        return True
    for function in ast.walk(reference):
        if isinstance(function, ast.FunctionDef) and not is_kernel(function):
            parameters = {argument.arg for argument in function.args.args}
            added = [node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign)]
            if any(isinstance(target, ast.Name) and target.id in parameters for target in added):
                return True
    calls = [node for node in ast.walk(reference) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Attribute) and writes(call.func.attr) for call in calls) or any(
        _STATEFUL.get(ast.unparse(call.func).rpartition(".")[2], "") in _words(call) for call in calls
    )


_STATEFUL = {
    "batch_norm": "running_mean", "instance_norm": "running_mean", "embedding": "max_norm", "embedding_bag": "max_norm",
}  # fmt: skip
"""Functions that write into an argument where another, named here, is given."""


def _words(call: ast.Call) -> set[str]:
    """The names that are passed to a call."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)}


def _inputs_text(functions: list[str], *, writes: bool) -> str:
    call = "[_packed(positional), _packed(named)]"
    if len(functions) > 1:
        call = "[name, _packed(positional), _packed(named)]"
    if writes:  # what could be left out unseen is no input
        wanted = f"_makes(result, positional, named) or not _same(before, {call}):"
        otherwise = "changes and returns nothing"
    else:
        wanted, otherwise = f"_same(before, {call}):  # it has not written into them", "writes into its arguments"
    recorders = ", ".join(f'record("{name}", {name})' for name in functions)
    return _INPUTS.format(call=call, wanted=wanted, otherwise=otherwise, recorders=recorders)


def _embedded(modules: dict[str, Path]) -> list[str]:
    if not modules:
        return []
    calls = [
        f"_define_module({name!r}, {on_default_device(file.read_python(path))!r})" for name, path in modules.items()
    ]
    return [MODULE, "\n".join(calls)]


def _with_stub(shown: str) -> str:
    return f"{shown.rstrip()}\n\n\ndef get_init_inputs():\n    return []\n"
