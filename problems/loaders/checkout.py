"""Which state of its repository a checkout is in, read from its files: git itself is not run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")


@cache
def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in the repository around `folder`; None where there is none, or it is not told."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            try:
                return _resolve(git, (git / "HEAD").read_text().strip())
            except OSError:
                return None
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
