"""What compilers made, kept by the content that it was made from. Only the judge writes here.

An artefact is a folder named by its key, with one file named by its kind and its own hash, which is checked before the
first use. It comes into being by a rename, so that several judges may share the folder, and is never changed. The least
recently used go when the whole is too large. What a key must say is the business of who makes it (`build`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from typing import Literal

Kind = Literal["object", "library", "headers", "failure"]
_KINDS = ("object", "library", "headers", "failure")
_KEEP = 0.8
"""Of `max_bytes`: to how much the whole is brought down when it is too large."""
_PREFIX, _COUNT = ".new-", ".count-"


class Artifacts:
    """A folder of artefacts.

    Args:
        folder: made if it is missing, with mode 0700.
        max_bytes: of all artefacts; one that is larger than half of it is not kept.

    Raises:
        PermissionError: the folder is not this user's own, or others may write there.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{folder} must belong to uid {os.geteuid()} with mode 0700: remove it")
        self._folder = folder
        self._max_bytes = max_bytes
        self._verified: set[str] = set()
        """Files whose hash was found right by this process."""

    def open(self, key: str) -> tuple[Kind, int] | None:
        """Kind and descriptor (for reading; the caller's) of what is kept under a key; None where nothing is."""
        folder = os.path.join(self._folder, key)
        try:
            (name,) = os.listdir(folder)
            kind, _, expected = name.partition("-")
            path = os.path.join(folder, name)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (OSError, ValueError):
            return None
        if path not in self._verified and (kind not in _KINDS or _hash_of(descriptor) != expected):
            os.close(descriptor)
            self._remove(key)  # a disk that was full, or somebody's hand
            return None
        self._verified.add(path)
        with contextlib.suppress(OSError):
            os.utime(folder)
        return kind, descriptor  # type: ignore[return-value]

    def put(self, key: str, kind: Kind, source: int) -> None:
        """Keeps what is in the file `source`; what is there already stays. Does nothing where there is no room."""
        size = os.fstat(source).st_size
        if size > self._max_bytes // 2:
            return
        self._make_room(size)
        new = os.path.join(self._folder, _PREFIX + secrets.token_hex(8))
        path = os.path.join(new, f"{kind}-{_hash_of(source)}")
        try:
            os.mkdir(new, mode=0o700)
            with open(path, "xb") as file:
                _copy(source, file.fileno())
                os.fchmod(file.fileno(), 0o444)  # a builder gets a descriptor of it
            os.rename(new, os.path.join(self._folder, key))
        except OSError:  # no room, or another judge was quicker
            shutil.rmtree(new, ignore_errors=True)

    def count(self, key: str) -> int:
        """How often this was asked, by all judges that share the folder: for what is worth making for many only.

        Each number is told once, so that one judge alone acts on it. 0 where there is no room to count.
        """
        try:
            with open(os.path.join(self._folder, _COUNT + key), "a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                number = int(file.read() or b"0") + 1
                file.truncate(0)
                file.write(b"%d" % number)
        except (OSError, ValueError):
            return 0
        return number

    def _make_room(self, size: int) -> None:
        entries = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):
                held = sum(os.stat(file).st_size for file in os.scandir(entry))
                entries.append((entry.stat().st_mtime, held, entry.name))
        total = size + sum(held for _, held, _ in entries)
        if total <= self._max_bytes:
            return
        for _, held, name in sorted(entries):
            self._remove(name)
            total -= held
            if total <= _KEEP * self._max_bytes:
                return

    def _remove(self, name: str) -> None:
        gone = os.path.join(self._folder, _PREFIX + secrets.token_hex(8))
        with contextlib.suppress(OSError):  # another judge removes it
            os.rename(os.path.join(self._folder, name), gone)
            shutil.rmtree(gone, ignore_errors=True)


def _hash_of(descriptor: int) -> str:
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
    return found


def _copy(source: int, target: int) -> None:
    offset, size = 0, os.fstat(source).st_size
    while offset < size:
        sent = os.sendfile(target, source, offset, size - offset)
        if sent == 0:
            raise OSError("the file became shorter")
        offset += sent
