"""Which state of its repository a checkout is in, read from its files: git itself is not run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")


@cache
def commit_of(path: Path, *layouts: str) -> str | None:
    """The commit that is checked out in the set's repository; None where it cannot be told.

    A repository further up is somebody's own that the set lies in, and a file in another place of this one is none of
    its files: of neither the commit would say which state of the set it is.

    Args:
        path: something of the set.
        layouts: where in the set's repository it lies, such as "reference/*/*.py".
    """
    path = path.absolute()
    for layout in layouts:
        if path.match(layout) and (found := _head(path.parents[layout.count("/")])) is not None:
            return found
    return None


def _head(root: Path) -> str | None:
    git = root / ".git"
    try:
        if git.is_file():  # of a submodule
            git = root / git.read_text().strip().removeprefix("gitdir: ")
        return _resolve(git, (git / "HEAD").read_text().strip())
    except (OSError, UnicodeDecodeError):
        return None


def _resolve(git: Path, head: str) -> str | None:
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    loose, packed = git / name, git / "packed-refs"
    if loose.is_file():
        found = loose.read_text().strip()
        return found if _COMMIT.fullmatch(found) else None
    if packed.is_file():
        match = re.search(rf"^([0-9a-f]{{40}}) {re.escape(name)}$", packed.read_text(), re.MULTILINE)
        return match[1] if match else None
    return None
