"""A submission's source as `kbenv.screen` looks at it: its tree, what names mean in it, and where things stand."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
BUILDS = r"(?:^|\.)(?:load_inline|RawKernel|RawModule|_compile_kernel)$|cpp_extension\.load$|ctypes\.(?:CDLL|PyDLL)$"
"""What makes a library or an extension."""


@dataclass(frozen=True)
class Found:
    """`within`: what to look for in the node's own text, for a narrower span."""

    rule: str
    node: ast.AST
    words: str
    within: str | None = None


@dataclass
class Code:
    """A source with its tree, and what names mean in it."""

    source: str
    tree: ast.Module
    nodes: list[ast.AST] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    literals: list[tuple[ast.Constant, str]] = field(default_factory=list)
    """Strings that are no docstrings."""
    modules: dict[str, str] = field(default_factory=dict)
    """Classes of torch.nn by the attribute of self that holds one, in lower case."""
    built: set[str] = field(default_factory=set)
    """Names and attributes that hold a library, an extension, or what a function of the source's own returned."""

    def __post_init__(self) -> None:
        self._children: dict[ast.AST, list[ast.AST]] = {}
        self.nodes = list(self.walk(self.tree))
        self.words = Counter(re.findall(r"\w+", self.source))
        self._lines = re.split(r"\r\n|\r|\n", self.source)
        spoken = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
            elif isinstance(node, Function):
                self.functions.append(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
                self.literals.append((node, node.value))
        own = {function.name for function in self.functions}
        for target, value in self.assignments():
            if isinstance(target, ast.Attribute | ast.Name) and isinstance(value, ast.Call):
                name = self.name_of(value.func)
                if isinstance(target, ast.Attribute) and name.startswith("torch.nn."):
                    self.modules[target.attr] = name.rsplit(".", 1)[-1].lower()
                elif name in own or re.search(BUILDS, name):
                    self.built.add(word_of(target))

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Targets and values of plain assignments."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield target, node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield node.target, node.value

    def walk(self, below: ast.AST) -> Iterator[ast.AST]:
        """As `ast.walk`, which looks for a node's children by their names each time."""
        nodes = [below]
        for node in nodes:
            if node not in self._children:
                self._children[node] = list(ast.iter_child_nodes(node))
            nodes += self._children[node]
            yield node

    def calls(self, below: ast.AST | None = None) -> Iterator[ast.Call]:
        for node in self.nodes if below is None else self.walk(below):
            if isinstance(node, ast.Call):
                yield node

    def name_of(self, node: ast.AST) -> str:
        """The full name of a name or a chain of attributes, imports resolved: "torch.nn.functional.relu"; else ""."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imported.get(node.id, node.id))
        return ".".join(reversed(parts))

    def is_imported(self, node: ast.AST) -> bool:
        """Whether a chain of attributes begins at something imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imported

    def text_of(self, node: ast.AST) -> str:
        """The beginning of a node's own text."""
        line, column, end_line, end_column = self.span(node)
        lines = self._lines[line - 1 : min(end_line, line + 3)]
        if end_line == line + len(lines) - 1:
            lines[-1] = lines[-1][:end_column]
        lines[0] = lines[0][column:]
        return " ".join(" ".join(lines)[:400].split())[:80]

    def span(self, node: ast.AST, within: str | None = None) -> tuple[int, int, int, int]:
        """Lines from 1 and columns, in characters, from 0; of `within` where the text holds it."""
        line, end_line = getattr(node, "lineno", 1), getattr(node, "end_lineno", None) or 1
        column = self._column(line, getattr(node, "col_offset", 0))
        end_column = self._column(end_line, getattr(node, "end_col_offset", None) or 0)
        for number in range(line, end_line + 1) if within is not None else ():
            pattern = re.compile(rf"(?<!\w){re.escape(within or '')}(?!\w)")
            if match := pattern.search(self._lines[number - 1], column if number == line else 0):
                return number, match.start(), number, match.end()
        return line, column, end_line, end_column

    def _column(self, line: int, offset: int) -> int:
        """Characters, where the tree counts bytes of UTF-8."""
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return len(text.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore"))


def word_of(node: ast.AST | None) -> str:
    """The last name of a name or of a chain of attributes; else ""."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
