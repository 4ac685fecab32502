"""Problems by name: kbenv's own, a KernelBench checkout's, and any file in KernelBench's format.

A problem is named by its id ("core/level1/relu", "kernelbench/level1/19") or by a file's path. Nothing here executes
a problem's source.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import core, file, kernelbench
from kbenv.problems.problem import Problem

__all__ = ["Problem", "list_problems", "load_problem"]


def load_problem(name: str, *, problems_dir: Path | None = None) -> Problem:
    """The problem `name`.

    Args:
        name: an id, or the path of a file in KernelBench's format. What ends in `.py` or starts with `/`, `./`, `../`
            or `~` is a path; so is anything else that no loader claims and that exists.
        problems_dir: a KernelBench checkout; by default the one that the environment variable `KBENV_KERNELBENCH`
            names.

    Raises:
        ProblemNotFoundError: there is no such problem, or its file cannot be read as one.
    """
    if file.is_path(name):
        return file.load(name)
    if not name.startswith((core.PREFIX, kernelbench.PREFIX)) and os.path.exists(name):
        return file.load(name)
    entries = _find_entries([name], problems_dir)
    if name not in entries:
        raise ProblemNotFoundError(f"no problem {name!r}; see `kbenv problems list`{_suggest(name, entries)}")
    return entries[name].load()


def list_problems(pattern: str = "*", *, problems_dir: Path | None = None) -> list[Problem]:
    """The problems whose ids match, in natural order (level 2 before 10), each once.

    Args:
        pattern: one or more patterns, separated by commas, with `*`, `?` and `[...]` (which cross `/`): "core/*",
            "core/level1/*,kernelbench/level1/19". A path of a file is taken as that file.
        problems_dir: as in `load_problem`. Without a checkout KernelBench's problems are left out, unless a pattern
            begins with "kernelbench/".

    Raises:
        ProblemNotFoundError: a pattern matches nothing, or a matching file cannot be read as a problem.
    """
    patterns = [part.strip() for part in pattern.split(",") if part.strip()]
    if not patterns:
        raise ProblemNotFoundError("expected a pattern such as 'core/*', found an empty one")
    ids = [part for part in patterns if not file.is_path(part)]
    entries = _find_entries(ids, problems_dir)
    matches: set[str] = set()
    for part in ids:
        matching = fnmatch.filter(entries, part)
        if not matching:
            raise ProblemNotFoundError(
                f"no problem matches {part!r}; see `kbenv problems list`{_suggest(part, entries)}"
            )
        matches.update(matching)
    listed = [entries[id].load() for id in sorted(matches, key=_natural_order)]
    return listed + [file.load(part) for part in dict.fromkeys(patterns) if file.is_path(part)]


@dataclass(frozen=True)
class _Entry:
    """A problem that exists and has not been read yet."""

    id: str
    path: Path
    loader: Callable[[str, Path], Problem]

    def load(self) -> Problem:
        return self.loader(self.id, self.path)


def _find_entries(wanted: list[str], problems_dir: Path | None) -> dict[str, _Entry]:
    """Every problem that the ids or patterns in `wanted` could mean; a checkout is looked at only when one could."""
    entries = _entries(core.find(), core.load)
    if all(name.startswith(core.PREFIX) for name in wanted):
        return entries
    checkout = problems_dir or _checkout_from_environment()
    if checkout is not None:
        return entries | _entries(kernelbench.find(checkout), kernelbench.load)
    for name in wanted:
        if name.startswith(kernelbench.PREFIX):
            raise ProblemNotFoundError(
                f"{name} needs a KernelBench checkout: set {kernelbench.ENVIRONMENT_VARIABLE} to its folder, or give "
                "--problems-dir"
            )
    return entries


def _entries(found: Mapping[str, Path], loader: Callable[[str, Path], Problem]) -> dict[str, _Entry]:
    return {id: _Entry(id, path, loader) for id, path in found.items()}


def _checkout_from_environment() -> Path | None:
    value = os.environ.get(kernelbench.ENVIRONMENT_VARIABLE)
    return Path(value) if value else None


def _suggest(name: str, entries: Mapping[str, _Entry]) -> str:
    """A clause that names close ids; empty when there are none."""
    by_stem = {id.rsplit("/", 1)[1]: id for id in entries if id.startswith(core.PREFIX)}
    close = difflib.get_close_matches(name, entries, n=2, cutoff=0.8)
    close += [by_stem[stem] for stem in difflib.get_close_matches(name.rsplit("/", 1)[-1], by_stem, n=1, cutoff=0.7)]
    return f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else ""


def _natural_order(id: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", id)]
