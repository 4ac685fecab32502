"""KernelBench-Verified's hidden inputs against the judge's, case by case: `benchmarks/results/hidden-inputs.md`.

    python benchmarks/hidden_inputs.py CHECKOUT [--out FILE]

For each file of the set's `hidden_tests` its `get_hidden_inputs` runs on stand-ins for what the problem's `get_inputs`
draws: of the same number, types and axes, with at most five elements along each. The judge's own code scales the same
stand-ins, laid out as in a job. Both must be equal in every bit, in number and order, and leave out the same. Foreign
code runs in a child process, as `benchmarks/problem_sets.py` does it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import platform
import sys
import tempfile
import types
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from problem_sets import _confine, _wait
from smaller_sizes import smaller

from kbenv.problems import Problem
from kbenv.problems.loaders import kernelbench_verified
from kbenv.problems.loaders.reduction import on_default_device
from kbenv.protocol import D1_D4
from kbenv.sandbox.judge.slots import scale_slots
from kbenv.sandbox.layout import Arena, Layout, flatten, leaf_of, unflatten

NAMES = tuple(hidden.name for hidden in D1_D4)
LARGEST = 5
TIME_S = 60.0


@dataclass(frozen=True)
class Compared:
    """One problem: what became of each hidden input, by name ("equal", "left out by both", or what differs)."""

    id: str
    outcomes: dict[str, str]


def main() -> int:
    """Runs the command line; returns its exit code: 1 where D1 to D4 differ anywhere."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "hidden-inputs.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.rand(1, device="meta") + 1  # loads what every child would load anew
    found = []
    for id, path in kernelbench_verified.find(arguments.folder).items():
        problem = kernelbench_verified.load(id, path)
        number = path.stem.split("_", 1)[0]
        hidden = arguments.folder / "hidden_tests" / path.parent.name / f"{number}_hidden.py"
        if hidden.is_file():
            found.append(Compared(id, compare_apart(problem, hidden.read_text(encoding="utf-8"))))
            if any(words not in ("equal", "left out by both") for words in found[-1].outcomes.values()):
                print(f"{id}: {found[-1].outcomes}", file=sys.stderr, flush=True)
    text = report(found, problem.origin.version if problem.origin is not None else None)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    differ = any(
        item.outcomes.get(name, "equal") not in ("equal", "left out by both") for item in found for name in NAMES
    )
    return 1 if differ else 0


def compare_apart(problem: Problem, hidden: str) -> dict[str, str]:
    """`compare` in a child of its own."""
    readable, writable = os.pipe()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        child = os.fork()
        if child == 0:
            os.close(readable)
            try:
                _confine(scratch, "cpu")
                with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                    answer = compare(problem, hidden)
            except BaseException as e:
                answer = {"all": f"{type(e).__name__}: {' '.join(str(e).split())[:120]}"}
            os.write(writable, json.dumps(answer).encode())
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable, "rb") as pipe:
            _wait(child, TIME_S)
            data = pipe.read()
    outcomes: dict[str, str] = json.loads(data) if data else {"all": "the process was killed"}
    return outcomes


def compare(problem: Problem, hidden: str) -> dict[str, str]:
    """What became of each hidden input of the set's, and of each of the judge's."""
    inputs = stand_ins(problem)
    module = types.ModuleType("hidden")
    module.__dict__["__file__"] = str(Path.cwd() / "hidden.py")
    exec(compile_text(hidden), module.__dict__)
    module.__dict__["_get_inputs"] = lambda: copy.deepcopy(inputs)
    theirs = module.__dict__["get_hidden_inputs"]()
    filtered = set(kernelbench_verified.filtered(hidden))
    named = [name for name in NAMES if name not in filtered]
    outcomes = {name: "left out by both" if name in problem.dropped else "left out by the set" for name in filtered}
    outcomes |= {name: "left out by kbenv" for name in named if name in problem.dropped}
    for name, given in zip(named, theirs, strict=False):
        factor = next(hidden.factor for hidden in D1_D4 if hidden.name == name)
        outcomes.setdefault(name, "equal" if same(scaled(inputs, factor), given) else "other values")
    outcomes |= {f"D{len(NAMES) + 1 + index}": "the set's alone" for index in range(len(theirs) - len(named))}
    outcomes |= {name: "kbenv's alone" for name in named[len(theirs) :]}
    return outcomes


def compile_text(text: str) -> types.CodeType:
    """The code of a hidden inputs' file."""
    return compile(text, "hidden.py", "exec")


def stand_ins(problem: Problem) -> list[Any]:
    """What `get_inputs` draws, with at most `LARGEST` elements along each axis, as numbers that nothing hides."""
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "problem"}
    problem = replace(problem, source=on_default_device(problem.source))  # one draws on a GPU by name
    einops: Any = types.ModuleType("einops")  # two import it, for forward alone
    einops.rearrange = einops.repeat = None
    sys.modules.setdefault("einops", einops)
    try:
        exec(compile(problem.source, "problem.py", "exec"), namespace)
        with torch.device("meta"):
            inputs = list(namespace["get_inputs"]())
    except Exception:  # it insists on the CPU: then with smaller sizes
        exec(compile(smaller(problem, 64, 128).source, "problem.py", "exec"), namespace)
        inputs = list(namespace["get_inputs"]())

    def small(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        shape = [min(size, LARGEST) for size in value.shape]
        if value.dtype.is_floating_point:
            return torch.randn(shape, dtype=torch.float32, device="cpu").to(value.dtype)
        return torch.randint(0, 2, shape, device="cpu").to(value.dtype)

    return [torch.utils._pytree.tree_map(small, value) for value in inputs]


def scaled(inputs: list[Any], factor: float) -> Any:
    """The inputs as a job draws and scales them."""
    tree, tensors = flatten(inputs)
    layout = Layout([leaf_of(tensor) for tensor in tensors])
    arena = Arena(torch.zeros(layout.slot_bytes, dtype=torch.uint8), layout, 1)
    for view, tensor in zip(arena.views(0), tensors, strict=True):
        view.copy_(tensor)
    if factor != 1.0:
        scale_slots(arena, 0, 1, factor)
    return unflatten(tree, arena.views(0))


def same(a: Any, b: Any) -> bool:
    """Whether two nested values are equal in every bit, and of the same types."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def report(found: list[Compared], version: str | None) -> str:
    """The table, a line for each level, and the differences."""
    outcomes = Counter((item.id.split("/")[1], name, words) for item in found for name, words in item.outcomes.items())
    levels = sorted({item.id.split("/")[1] for item in found})
    lines = [
        "# Hidden inputs of KernelBench-Verified, and ours",
        "",
        f"{date.today():%Y-%m-%d}; Python {platform.python_version()}, torch {torch.__version__}; the set at "
        f"{(version or 'unknown')[:17]}. Made by `python benchmarks/hidden_inputs.py CHECKOUT`, which says what is "
        "compared. A cell: hidden inputs that are equal in every bit, of those that the set has.",
        "",
        "| level | problems | " + " | ".join(NAMES) + " | further |",
        "|" + "---|" * (len(NAMES) + 3),
    ]
    for level in levels:
        cells = []
        for name in NAMES:
            has = sum(
                count for (at, which, words), count in outcomes.items()
                if (at, which) == (level, name) and not words.startswith("left out")
            )  # fmt: skip
            cells.append(f"{outcomes[level, name, 'equal']} of {has}")
        further = sum(
            count for (at, which, _), count in outcomes.items() if at == level and which not in (*NAMES, "all")
        )
        problems = sum(item.id.split("/")[1] == level for item in found)
        lines.append(f"| {level.removeprefix('level')} | {problems} | {' | '.join(cells)} | {further} |")
    lines += ["", "| problem | hidden input | what differs |", "|---|---|---|"]
    lines += [
        f"| {item.id} | {name} | {words} |"
        for item in found
        for name, words in item.outcomes.items()
        if words != "equal"
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
