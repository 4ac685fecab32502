"""Files of a function and its test: the function, a line of `#`, and a test block that calls it and keeps the results.

The problem's inputs are the calls that the test makes, recorded as it runs (in the sandbox, on the device in use, with
the judge's seeds); its output is what the calls return. What a test prints or asserts does not count, nor what it does
with the results, such as a backward pass. `ModelNew` takes the same calls; a submission may as well define the function
itself, and then `ADAPTER` makes the calls.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.reduction import MODULE, PACK, SAME, UNPACK, indent, on_default_device, writes
from kbenv.problems.problem import Contract, Problem, defined_names

_SEPARATOR = re.compile(r"^#{60,}[ \t]*$", re.MULTILINE)

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
            if {writes} or _same(before, {call}):  # a call that writes into its arguments otherwise is no input
                calls.append(before)
            return result

        return recorded

    with torch.enable_grad():
        _test({recorders})
    if not calls:
        raise RuntimeError("every call of the test raises, or writes into its arguments")
    return calls


def get_init_inputs():
    return []
"""


def is_one(source: str) -> bool:
    """Whether `source` has the separator of this format."""
    return _SEPARATOR.search(source) is not None


def load(id: str, path: Path, contract: Contract, modules: dict[str, Path] | None = None, **facts: Any) -> Problem:
    """The problem in the file at `path`.

    Args:
        contract: what the set asks besides calls of a function; entry and adapter are filled in here.
        modules: modules of the set's own that its tests import, by name.
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
    in_place = _writes(file.parse(reference, path))
    call, table = _model_text(functions)
    adapter = UNPACK.lstrip() + "\n" + call.format(model="ModelNew", name=functions[0], table=table)
    imports = "import torch  # for what follows, whatever the reference imports" if "import torch\n" not in text else ""
    model = call.format(model="Model", name=functions[0], table=table)
    shown = "\n\n".join(part.strip("\n") + "\n" for part in (reference, imports, UNPACK, model) if part)
    parts = [
        shown,
        PACK,
        SAME,
        *_embedded(modules or {}),
        _test_text(test, functions, path.stem),
        _inputs_text(functions, writes=in_place),
    ]
    return file.from_source(
        "\n".join(part.strip("\n") + "\n\n" for part in parts).rstrip() + "\n",
        path=path, id=id, name=path.stem, level=None, shown=_with_stub(shown),
        contract=replace(contract, in_place=(-1,) if in_place else (),
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
    return found


def _model_text(functions: list[str]) -> tuple[str, str]:
    """The template of the model's class, and its table of functions where there are several."""
    return (_ONE if len(functions) == 1 else _SEVERAL), ", ".join(f'"{name}": {name}' for name in functions)


def _test_text(test: str, functions: list[str], own_module: str) -> str:
    """The test as a function of what it calls; what it imports from the file itself is what it is given."""
    tree = ast.parse(test)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.module == own_module)]
    body = indent(on_default_device(ast.unparse(tree)))
    return f"def _test({', '.join(functions)}):\n{body}\n"


def _writes(reference: ast.Module) -> bool:
    """Whether it writes into what may be its caller's.

    It has methods such as `add_`, adds to a parameter, normalises with running statistics (which training moves), or
    looks up an embedding with `max_norm` (which scales the rows it reads, where they are longer).
    """
    for function in ast.walk(reference):
        if isinstance(function, ast.FunctionDef):
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
    return _INPUTS.format(
        call=call, writes=writes, recorders=", ".join(f'record("{name}", {name})' for name in functions)
    )


def _embedded(modules: dict[str, Path]) -> list[str]:
    if not modules:
        return []
    calls = [
        f"_define_module({name!r}, {on_default_device(file.read_python(path))!r})" for name, path in modules.items()
    ]
    return [MODULE, "\n".join(calls)]


def _with_stub(shown: str) -> str:
    return f"{shown.rstrip()}\n\n\ndef get_init_inputs():\n    return []\n"
