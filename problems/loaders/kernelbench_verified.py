"""KernelBench-Verified: KernelBench's levels 1-3 with hidden inputs beside them, as "kernelbench-verified/level1/19".

What the set shows of four problems in place of their source (`stripped_prompts/`) is what a prompt shows of them. The
hidden inputs of `hidden_tests/level<L>/<number>_hidden.py` are those that kbenv's protocols draw themselves (the
draw, times 3, times 0.01, times -1); read from there is which of them the set leaves out, and which it has besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kbenv.problems.loaders import file, kernelbench
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.problem import Origin, Problem

PREFIX = "kernelbench-verified/"
FORMAT = "KernelBench-Verified: KernelBench/level<L>/<number>_<name>.py and hidden_tests/level<L>/<number>_hidden.py"

_FACTORS = {"1.0": "D1", "3.0": "D2", "0.01": "D3", "-1.0": "D4"}
_CONFIG = re.compile(r"^    # (D\d+): (.*)$", re.MULTILINE)
_SCALED = re.compile(r"configs\.append\(_scale\(_get_inputs\(\), ([-\d.]+)\)\)")
_FILTERED = re.compile(r"^  (D\d+) \(.*?\): (.*)$", re.MULTILINE)


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set."""
    return (folder / "hidden_tests").is_dir() and (folder / "KernelBench").is_dir()


def find(folder: Path) -> Mapping[str, Path]:
    """Each problem's file by its id. Raises ProblemNotFoundError as `kernelbench.find`."""
    found = kernelbench.find(folder)
    return {PREFIX + id.removeprefix(kernelbench.PREFIX): path for id, path in found.items()}


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file and its hidden inputs' file. Raises ProblemNotFoundError as `file.read`."""
    root = path.parents[2]
    number = path.stem.split("_", 1)[0]
    level = int(path.parent.name.removeprefix("level"))
    hidden = root / "hidden_tests" / f"level{level}" / f"{number}_hidden.py"
    text = file.read_text(hidden) if hidden.is_file() else ""
    stripped = root / "stripped_prompts" / f"{path.stem}_prompt.py"
    return file.from_source(
        kernelbench.without_hub(file.read_text(path), path), path=path, id=id,
        name=path.stem.split("_", 1)[1].strip("_"), level=level, dropped=filtered(text),
        origin=Origin(
            "kernelbench-verified", "https://github.com/facebookresearch/kernel_bench_verified", "MIT",
            version=commit_of(path, "KernelBench/*/*.py"),
        ),
        same_as=kernelbench.PREFIX + id.removeprefix(PREFIX),
        view=kernelbench.view_of(level, int(number)), shown=file.read_python(stripped) if stripped.is_file() else None,
        contract=kernelbench.contract_of(level, int(number)),
        tags=tuple(f"hidden:{name}" for name in hidden_inputs(text) if name not in _FACTORS.values()),
    )  # fmt: skip


def filtered(text: str) -> dict[str, str]:
    """Hidden inputs that a `*_hidden.py` says it leaves out, with the reason."""
    _, _, after = text.partition("Filtered (")
    return {name: reason for name, reason in _FILTERED.findall(after.partition('"""')[0])}


def hidden_inputs(text: str) -> dict[str, float | None]:
    """The hidden inputs that a `*_hidden.py` draws, by name, with the factor of each; None where it is no factor."""
    found: dict[str, float | None] = {}
    _, _, body = text.partition("def get_hidden_inputs")
    parts = _CONFIG.split(body)
    for name, rest in zip(parts[1::3], parts[3::3], strict=True):
        scaled = _SCALED.search(rest)
        plain = "configs.append(_get_inputs())" in rest
        found[name] = float(scaled[1]) if scaled else 1.0 if plain else None
    return found
