"""Problems by name: kbenv's own, those of other sets that are checked out here, and any file in a known format.

A problem is named by its id ("core/level1/relu", "kernelbench/level1/19", "kernelbench-hard/01_fp8_gemm#2" for one of
several cases) or by a file's path. Nothing here executes a problem's source.
"""

from __future__ import annotations

import difflib
import fnmatch
import glob
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import EVALUATION_ALONE, LOADERS, core, file, kernelbench, load_file, recognise
from kbenv.problems.problem import Problem, training_forbidden

__all__ = [
    "SETS_VARIABLE",
    "Problem",
    "check_training",
    "import_problems",
    "list_problems",
    "load_problem",
    "may_train",
]

SETS_VARIABLE = "KBENV_PROBLEM_SETS"
"""Checkouts of other sets, separated like the folders of PATH."""


def load_problem(name: str, *, problems_dir: Path | None = None) -> Problem:
    """The problem `name`.

    Args:
        name: an id, or the path of a file in a known format. What ends in `.py` or starts with `/`, `./`, `../`
            or `~` is a path; so is anything else that no loader claims and that exists.
        problems_dir: a checkout of a known set, or one of its folders; by default those that the environment variables
            `KBENV_KERNELBENCH` (one of KernelBench) and `KBENV_PROBLEM_SETS` name.

    Raises:
        ProblemNotFoundError: there is no such problem, or its file cannot be read as one.
    """
    if file.is_path(name):
        return _load_path(name)
    if not name.startswith((core.PREFIX, kernelbench.PREFIX)) and os.path.exists(name):
        return _load_path(name)
    id, _, case = name.partition("#")
    entries = _find_entries([id], problems_dir)
    if id not in entries:
        raise ProblemNotFoundError(f"no problem {id!r}; see `kbenv problems list`{_suggest(id, entries)}")
    problem = entries[id].load()
    return problem.for_case(case) if case else problem


def list_problems(
    pattern: str = "*", *, problems_dir: Path | None = None, on_refused: Callable[[str], None] | None = None
) -> list[Problem]:
    """The problems whose ids match, in natural order (level 2 before 10), each once.

    Args:
        pattern: one or more patterns, separated by commas, with `*`, `?` and `[...]` (which cross `/`): "core/*",
            "core/level1/*,kernelbench/level1/19". A path is taken as that file, one with wildcards ("mine/*.py") as
            those that match. Exercises of our own (`core.EXERCISES`) match by their full ids alone.
        problems_dir: as in `load_problem`. Sets that are not checked out are left out, unless a pattern begins with
            "kernelbench/".
        on_refused: told, in words, of each match of a wildcard that cannot be read as a problem, which is then left
            out; without it that is an error.

    Raises:
        ProblemNotFoundError: a pattern matches nothing that can be read as a problem, or a file that is named cannot.
    """
    patterns = [part.strip() for part in pattern.split(",") if part.strip()]
    if not patterns:
        raise ProblemNotFoundError("expected a pattern such as 'core/*', found an empty one")
    ids = [part for part in patterns if not file.is_path(part)]
    entries = _find_entries(ids, problems_dir)
    matches: set[str] = set()
    for part in ids:
        matching = [part] if part in entries else fnmatch.filter(entries.keys() - core.EXERCISES.keys(), part)
        if not matching:
            raise ProblemNotFoundError(
                f"no problem matches {part!r}; see `kbenv problems list`{_suggest(part, entries)}"
            )
        matches.update(matching)
    found = [entries[id] for id in sorted(matches, key=_natural_order)]
    paths = [path for part in patterns if file.is_path(part) for path in _match_files(part)]
    found += [_file_entry(path) for path in dict.fromkeys(paths)]
    listed, refused = [], []
    for entry in found:
        try:
            listed.append(entry.load())
        except ProblemNotFoundError as e:
            if on_refused is None or entry.id in patterns:
                raise
            refused.append(f"{entry.id} does not load, and is left out: {e}")
    if not listed:
        raise ProblemNotFoundError(f"nothing that matches {pattern!r} loads: {refused[0]}")
    if on_refused is not None:
        for words in refused:
            on_refused(words)
    return listed


def may_train(id: str) -> bool:
    """Whether the licence of the set that `id` names leaves training on it free. The set need not be there."""
    return not id.startswith(tuple(EVALUATION_ALONE))


def check_training(id: str) -> None:
    """As `Problem.check_training`, by the problem's id alone. Raises TrainingForbiddenError."""
    for prefix, licence in EVALUATION_ALONE.items():
        if id.startswith(prefix):
            raise training_forbidden(id, prefix.rstrip("/"), licence)


def import_problems(path: Path) -> tuple[str, list[Problem], list[str]]:
    """Everything in a checkout, a folder or a file: its format in words, what loads, and why the rest does not.

    Raises:
        ProblemNotFoundError: it is in no known format.
    """
    if path.is_file() and path.suffix == ".py":
        return "one file", [load_file(path, str(path))], []
    if own := _own_files(path):
        form, entries = f"a folder of files; name them '{path}/*.py'", own
    else:
        loader = recognise(path)
        form, entries = loader.FORMAT, _entries(loader.find(path), loader.load)
    problems, refused = [], []
    for entry in entries.values():
        try:
            problems.append(entry.load())
        except ProblemNotFoundError as e:
            refused.append(f"{entry.id} does not load: {e}")
    return form, problems, refused


def _own_files(folder: Path) -> dict[str, _Entry]:
    """The Python files of a folder in no set's format, if one of them at least is a problem."""
    if not folder.is_dir() or any(loader.recognises(folder) for loader in LOADERS):
        return {}
    entries = {str(path): _file_entry(str(path)) for path in sorted(folder.glob("*.py")) if path.is_file()}
    return entries if any(map(_loads, entries.values())) else {}


def _loads(entry: _Entry) -> bool:
    try:
        entry.load()
    except ProblemNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class _Entry:
    """A problem that exists and has not been read yet."""

    id: str
    path: Path
    loader: Callable[[str, Path], Problem]

    def load(self) -> Problem:
        return self.loader(self.id, self.path)


def _match_files(pattern: str) -> list[str]:
    """The files that a path with wildcards names, or the path itself where such a file is there or it has none.

    Raises:
        ProblemNotFoundError: no file matches.
    """
    if not glob.has_magic(pattern) or file.path_of(pattern).exists():
        return [pattern]
    found = sorted(glob.glob(str(file.path_of(pattern)), recursive=True), key=_natural_order)
    if not found:
        raise ProblemNotFoundError(f"{pattern}: no file matches")
    return found


def _load_path(name: str) -> Problem:
    return load_file(file.path_of(name), name)


def _file_entry(name: str) -> _Entry:
    return _Entry(name, file.path_of(name), lambda id, path: load_file(path, id))


def _find_entries(wanted: list[str], problems_dir: Path | None) -> dict[str, _Entry]:
    """Every problem that the ids or patterns in `wanted` could mean; other sets are looked at only when one could."""
    entries = _entries(core.find(), core.load)
    if all(name.startswith(core.PREFIX) for name in wanted):
        return entries
    if problems_dir is not None:
        checkout_dir = problems_dir.expanduser()
        if not any(loader.recognises(checkout_dir) for loader in LOADERS):
            kernelbench.find(checkout_dir)  # says what was expected there
        return entries | _entries_of(checkout_dir)
    if checkout := os.environ.get(kernelbench.ENVIRONMENT_VARIABLE):
        entries |= _entries(kernelbench.find(Path(checkout)), kernelbench.load)
    for folder in filter(None, os.environ.get(SETS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).expanduser().exists():
            raise ProblemNotFoundError(f"{SETS_VARIABLE} names {folder}, and there is no such folder")
        try:
            entries |= _entries_of(Path(folder).expanduser())
        except ProblemNotFoundError as e:
            raise ProblemNotFoundError(f"{SETS_VARIABLE} names {e}") from e
    for name in wanted:
        if name.startswith(kernelbench.PREFIX) and not any(id.startswith(kernelbench.PREFIX) for id in entries):
            raise ProblemNotFoundError(
                f"{name} needs a KernelBench checkout: set {kernelbench.ENVIRONMENT_VARIABLE} to its folder, or give "
                "--problems-dir"
            )
    return entries


def _entries_of(folder: Path) -> dict[str, _Entry]:
    """Those of a checkout of any set that is known."""
    loader = recognise(folder)
    return _entries(loader.find(folder), loader.load)


def _entries(found: Mapping[str, Path], loader: Callable[[str, Path], Problem]) -> dict[str, _Entry]:
    return {id: _Entry(id, path, loader) for id, path in found.items()}


def _suggest(name: str, entries: Mapping[str, _Entry]) -> str:
    """A clause that names close ids; empty when there are none."""
    by_stem = {id.rsplit("/", 1)[1]: id for id in entries if id.startswith(core.PREFIX)}
    close = difflib.get_close_matches(name, entries, n=2, cutoff=0.8)
    close += [by_stem[stem] for stem in difflib.get_close_matches(name.rsplit("/", 1)[-1], by_stem, n=1, cutoff=0.7)]
    return f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else ""


def _natural_order(id: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", id)]
