"""A problem: a PyTorch reference with its inputs, in KernelBench's format.

The source defines `Model`, `get_inputs` and `get_init_inputs`. kbenv never executes it outside the sandbox: what is
known here comes from its syntax tree.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
SIZES_NAME = "SIZES"


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        id: unique name, for example "core/level1/relu", "kernelbench/level1/19", or a file's path.
        name: what people call it.
        level: KernelBench level, None for a file of the user's.
        source: the reference's Python source, lines ending in "\\n", with the sizes meant for a GPU.
        sizes: module constants per device type ("gpu", "cpu"), from the source's literal `SIZES`; empty when it has
            none.
        dropped: hidden distributions on which the reference itself fails, with the reason ("D2": "overflows to Inf").
        path: the file it came from.
    """

    id: str
    name: str
    level: int | None
    source: str
    sizes: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None

    def source_for(self, device: str) -> str:
        """The source with the module constants of `device` ("cpu", "cuda", "cuda:1") in place.

        Top-level assignments `name = literal` to the names in `sizes` are rewritten, and the table `SIZES` is left out
        unless the source itself reads it, so that prompt, judge and reader see one plain file.
        """
        sizes = self.sizes.get("cpu" if device.split(":")[0] == "cpu" else "gpu")
        if not sizes:
            return self.source
        tree = parse_source(self.source)
        lines = self.source.split("\n")  # not splitlines: it also splits at form feeds, which the parser does not count
        for name, statement in reversed(list(constant_assignments(tree))):
            first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno)
            if name in sizes:
                lines[first:last] = [f"{name} = {sizes[name]!r}"]
            elif name == SIZES_NAME and not _reads(tree, SIZES_NAME):
                del lines[first:last]
        return "\n".join(lines)


def parse_source(source: str) -> ast.Module:
    """The syntax tree of `source`, without the parser's warnings about somebody else's code.

    Raises:
        SyntaxError, ValueError (NUL characters), RecursionError, MemoryError (nested too deeply): not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def constant_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    """The module's top-level assignments to one plain name, in order, each alone on its lines."""
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        else:
            continue
        neighbours = tree.body[max(index - 1, 0) : index] + tree.body[index + 1 : index + 2]
        shares_a_line = any(
            node.lineno <= (other.end_lineno or 0) and other.lineno <= (node.end_lineno or 0) for other in neighbours
        )
        if isinstance(target, ast.Name) and not shares_a_line:
            yield target.id, node


def _reads(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in ast.walk(tree)
    )
