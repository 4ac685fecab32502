"""Which commit of its set a problem is from: that of the set's own repository, and of no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbenv.problems import import_problems
from kbenv.problems.loaders.checkout import commit_of
from tests import test_bad_sets as sets
from tests.test_loaders import write

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
CHECKOUTS = tuple(make for make in sets.SETS if make not in (sets.table, sets.sol_execbench))


def versions(folder: Path) -> set[str | None]:
    _, problems, refused = import_problems(folder)
    assert refused == []
    return {problem.origin.version for problem in problems if problem.origin is not None}


@pytest.mark.parametrize("make", CHECKOUTS)
def test_a_set_s_own_repository_tells_its_version_and_one_around_it_does_not(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    write(tmp_path / ".git" / "HEAD", OTHER)
    for name in ("without", "within"):
        make(tmp_path / name)
    write(tmp_path / "within" / ".git" / "HEAD", COMMIT)
    sizes = "v0.1" if make is sets.kernelbench else None
    assert versions(tmp_path / "without") == {sizes}
    assert versions(tmp_path / "within") == {f"{sizes} {COMMIT}" if sizes else COMMIT}


def test_a_data_set_beside_samples_is_in_no_state_of_their_repository(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", COMMIT)
    sets.sol_execbench(tmp_path / "tests" / "sol_execbench" / "samples")
    assert versions(tmp_path) == {COMMIT}
    sets.sol_execbench(tmp_path / "data" / "benchmark" / "L1")
    assert versions(tmp_path / "data") == {None}


def test_a_submodule_s_commit_is_its_own(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", OTHER)
    sets.kernelbench(tmp_path / "KB")
    write(tmp_path / "KB" / ".git", "gitdir: ../.git/modules/KB\n")
    assert versions(tmp_path / "KB") == {"v0.1"}
    commit_of.cache_clear()
    write(tmp_path / ".git" / "modules" / "KB" / "HEAD", COMMIT)
    assert versions(tmp_path / "KB") == {f"v0.1 {COMMIT}"}
