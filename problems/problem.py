"""A problem: a PyTorch reference with its inputs, in KernelBench's format.

The source defines `Model`, `get_inputs` and `get_init_inputs`. kbenv never executes it outside the sandbox: what is
known here comes from its syntax tree, or from what lies beside it in its set. A loader of another format writes such a
source around the set's own reference, so that the judge has one kind of problem; what that cannot express is said in
the problem's `Contract`, and `why_unjudged` says which of it the judge would get wrong.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from kbenv.errors import TrainingForbiddenError, UsageError

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
SIZES_NAME = "SIZES"
ENTRY = "ModelNew"
"""What a submission defines."""

Role = Literal["public", "hidden", "perf"]
View = Literal["full", "blind"]
Precision = Literal["fp32", "bf16", "fp16"]
Dtype = Literal["fp32", "bf16", "fp16", "mixed"]


@dataclass(frozen=True)
class Origin:
    """The set that a problem comes from.

    Attributes:
        name: the set's name, which begins its problems' ids.
        url: where it is published.
        licence: SPDX identifier, or the licence's own name; None where it is unknown.
        may_train: False where the licence restricts training on it; then only evaluation is done with it.
        version: which state of the set: a commit, or a name such as "v0.1"; None where it cannot be told.
    """

    name: str
    url: str
    licence: str | None
    may_train: bool = True
    version: str | None = None


@dataclass(frozen=True)
class Case:
    """One shape or argument set of a problem.

    Attributes:
        name: unique in its problem; "kernelbench-hard/01_fp8_gemm#2" is the case "2".
        role: "public" (shown, checked), "hidden" (checked), "perf" (timed, and checked).
        constants: module constants that put it in place.
        dtype: as `Contract.dtype`, where it differs between cases.
    """

    name: str
    role: Role
    constants: Mapping[str, Any]
    dtype: Dtype | None = None


TOLERANCES = ("absolute", "relative", "share", "cap")
"""An element is right within absolute + relative * |reference|; a share of each output's must be, and none off by more
than the cap."""


@dataclass(frozen=True)
class Comparator:
    """How the set itself compares an output with the reference's.

    Attributes:
        kind: "allclose" (every element within a tolerance), "matched" (a share of them), "exact", "metrics" (cosine
            similarity, relative L1, RMSE), "custom" (a checker of the set's), "distribution" (outputs are random by
            contract, and the judge compares their distributions).
        parameters: its numbers: for "allclose" and "matched" those of `TOLERANCES` that the set names, for "metrics" by
            the set's own names.
    """

    kind: Literal["allclose", "matched", "exact", "metrics", "custom", "distribution"] = "allclose"
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Contract:
    """What a set asks of a submission beyond KernelBench's format, whose own contract is the default.

    Everything here has a consequence. What the judge finds out by itself is not declared: how forward takes its inputs
    (as `get_inputs` returns them), what comes out (as the reference's does), and whether there are weights.

    Attributes:
        reference: what the set's reference is: a module, a function, a Triton or library operator, a backward pass;
            `kbenv problems import` counts them.
        mode: "train", as PyTorch constructs modules, or "eval": both models are put into evaluation mode, where dropout
            does nothing and normalisation uses its running statistics.
        dtype: "fp32", "bf16" or "fp16" where the set fixes the type of all floating inputs, "mixed" where it fixes
            several; None where the protocol's precision decides.
        comparator: the set's own comparison. The numbers of "allclose" and "matched" are the tolerance of a protocol
            that asks for them (`Protocol.own_tolerance`), and stand aside for that of any other; for "custom" the
            source defines `_kbenv_check(arguments, output)`.
        in_place: positions of the arguments that the reference writes into, -1 for all of them; what becomes of them is
            judged as well.
        processes: how many processes of a group run the reference at once.
        entry: what the set's own submissions define.
        adapter: Python that defines `ModelNew` after a submission that defines only `entry`; empty where there is none.
        backends: the kernel languages that the set admits, by name; None for any.
        requires: packages that the reference imports besides PyTorch; `kbenv problems import` names them.
        unsupported: what else the judge cannot do for it, in words; None when there is nothing.
    """

    reference: Literal["module", "function", "operator", "backward"] = "module"
    mode: Literal["train", "eval"] = "train"
    dtype: Dtype | None = None
    comparator: Comparator = Comparator()
    in_place: tuple[int, ...] = ()
    processes: int = 1
    entry: str = ENTRY
    adapter: str = ""
    backends: tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()
    unsupported: str | None = None


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
        origin: the set it belongs to; None for a file of the user's.
        same_as: the id of the problem of another set that it repeats; None where it repeats none.
        category: such as "activation" or "attention"; None where it is not told.
        tags: anything else that groups problems.
        contract: what it asks beyond KernelBench's format.
        cases: its shapes, where there are several.
        case: the name of the one that is in place; None where there is one, or none has been chosen yet.
        view: what a prompt shows: everything, or everything but how inputs are drawn.
        shown: what a prompt shows instead of the source, where the source holds a loader's machinery.
        hints: what bounds it ("flops", "bytes"), numbers or formulas over its sizes.
    """

    id: str
    name: str
    level: int | None
    source: str
    sizes: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None
    origin: Origin | None = None
    same_as: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    contract: Contract = Contract()
    cases: tuple[Case, ...] = ()
    case: str | None = None
    view: View = "full"
    shown: str | None = None
    hints: Mapping[str, int | float | str] = field(default_factory=dict)

    def source_for(self, device: str) -> str:
        """The source with the module constants of `device` ("cpu", "cuda", "cuda:1") and of the case in place.

        Top-level assignments `name = literal` to the names in `sizes` and in the case's constants are rewritten, and
        the table `SIZES` is left out unless the source itself reads it: prompt, judge and reader see one plain file.
        """
        sizes = self.sizes.get("cpu" if device.split(":")[0] == "cpu" else "gpu", {})
        return _put_constants(self.source, {**sizes, **self._case_constants()}, drop_sizes=bool(sizes))

    @property
    def dtype(self) -> Dtype | None:
        """As `Contract.dtype`, of the case that is in place."""
        return next((case.dtype for case in self.cases if case.name == self.case), None) or self.contract.dtype

    @property
    def own_precision(self) -> Precision | None:
        """The one that it must be judged with; None where any will do. Several cases may differ: of the first then."""
        types = [self.dtype] if self.case is not None or not self.cases else [
            case.dtype or self.contract.dtype for case in self.cases
        ]  # fmt: skip
        return "bf16" if types[0] == "mixed" else types[0]

    def source_judged(self, device: str) -> str:
        """`source_for`, and behind it what a runner must know of the contract (sandbox/runner/switch.py)."""
        switches = ["_kbenv_keeps_types = True"] if self.dtype == "mixed" else []
        if self.contract.mode == "eval":
            switches.append("_kbenv_evaluates = True")
        if self.contract.comparator.kind == "exact":
            switches.append("_kbenv_bits = True")
        if self.contract.in_place:
            switches.append(f"_kbenv_writes = {self.contract.in_place!r}")
        source = self.source_for(device)
        return "\n\n".join([source.rstrip("\n"), *switches, ""]).rstrip("\n") + "\n" if switches else source

    def source_shown(self, device: str, view: View | None = None) -> str:
        """What a prompt shows of the problem: `view` or, by default, the problem's own choice.

        The blind view leaves out `get_inputs`, so that a model cannot fit its kernel to how inputs are drawn.
        """
        text = self.source_for(device) if self.shown is None else _put_constants(self.shown, self._case_constants())
        return _without_functions(text, {"get_inputs"}) if (view or self.view) == "blind" else text

    def for_case(self, name: str) -> Problem:
        """The problem with one of its cases in place.

        Raises:
            UsageError: it has no such case.
        """
        if name not in (case.name for case in self.cases):
            names = ", ".join(case.name for case in self.cases) or "it has no cases"
            raise UsageError(f"{self.id} has no case {name!r}; found {names}")
        return replace(self, id=f"{self.id.split('#')[0]}#{name}", case=name)

    def without_hidden_cases(self) -> Problem:
        """The problem with the cases alone that a prompt shows; with one of them in place where there is no other.

        Raises:
            UsageError: every case is hidden.
        """
        shown = tuple(case for case in self.cases if case.role != "hidden")
        if self.case is not None or len(shown) == len(self.cases):
            return self
        if not shown:
            raise UsageError(f"{self.id}: all of its {len(self.cases)} cases are hidden; nothing can be tried of it")
        return self.for_case(shown[0].name) if len(shown) == 1 else replace(self, cases=shown)

    def complete(self, submission: str) -> str:
        """`submission`, with what makes a `ModelNew` of the set's own entry where it defines that one alone."""
        contract = self.contract
        if not contract.adapter:
            return submission
        try:
            names = set(defined_names(parse_source(submission).body))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return submission
        if ENTRY in names or contract.entry not in names:
            return submission
        return f"{submission.rstrip()}\n\n\n{contract.adapter.strip()}\n"

    def why_unjudged(self, precision: str) -> str | None:
        """Why a verdict under `precision` would be wrong, with what to do instead; None when it would be right."""
        contract, kind = self.contract, self.contract.comparator.kind
        if len(self.cases) > 1 and self.case is None:  # all are judged that can be
            reasons = [self.for_case(case.name).why_unjudged(precision) for case in self.cases]
            return None if None in reasons else reasons[0]
        if self.dtype == "mixed" and precision not in ("bf16", "fp16"):
            return "it fixes several floating types, which are kept; judge it with --precision bf16, for its tolerance"
        if self.dtype not in (None, "mixed", precision):
            return f"it is defined in {self.dtype}; judge it with --precision {self.dtype}"
        if kind == "custom" and "_kbenv_check" not in self.source:
            return "its set compares by a checker of its own, which its loader does not hand on yet"
        if contract.processes > 1:
            return f"it runs in a group of {contract.processes} processes, and the judge runs one"
        return contract.unsupported

    def check_training(self) -> None:
        """Raises TrainingForbiddenError where the set's licence restricts training on it."""
        if self.origin is not None and not self.origin.may_train:
            raise training_forbidden(self.id, self.origin.name, self.origin.licence)

    def _case_constants(self) -> Mapping[str, Any]:
        """Of the case that is in place; before one is chosen, of the first that is timed, else of the first."""
        chosen = [case for case in self.cases if case.name == self.case]
        timed = [case for case in self.cases if case.role == "perf"]
        return next((case.constants for case in (*chosen, *timed, *self.cases)), {})


def training_forbidden(id: str, name: str, licence: str | None) -> TrainingForbiddenError:
    """What is raised where problem `id` of the set `name` was to be trained on and its licence restricts that."""
    return TrainingForbiddenError(
        f"{id}: the licence of {name} ({licence}) restricts training; use it to evaluate alone (`kbenv eval`, "
        "`kbenv run`, environments with evaluation=True), or train on another set"
    )


def _put_constants(source: str, constants: Mapping[str, Any], *, drop_sizes: bool = False) -> str:
    if not constants:
        return source
    return _put_literals(source, tuple((name, repr(value)) for name, value in constants.items()), drop_sizes)


@lru_cache(maxsize=64)  # of one problem each verdict asks several times
def _put_literals(source: str, literals: tuple[tuple[str, str], ...], drop_sizes: bool) -> str:
    constants = dict(literals)
    tree = parse_source(source)
    lines = source.split("\n")  # not splitlines: it also splits at form feeds, which the parser does not count
    for name, statement in reversed(list(constant_assignments(tree))):
        first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno)
        if name in constants:
            lines[first:last] = [f"{name} = {constants[name]}"]
        elif drop_sizes and name == SIZES_NAME and not _reads(tree, SIZES_NAME):
            del lines[first:last]
    return "\n".join(lines)


def _without_functions(source: str, names: set[str]) -> str:
    """The source without the module's functions of these names."""
    lines = source.split("\n")
    for node in reversed(parse_source(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            last = node.end_lineno or node.lineno
            while last < len(lines) and not lines[last].strip():
                last += 1
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


def defined_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that module-level statements bind, those under a top-level `if`, `try` or `with` included."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.If):
            yield from defined_names([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from defined_names(node.body)
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from defined_names([*node.body, *handlers, *node.orelse, *node.finalbody])
