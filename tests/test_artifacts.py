"""What compilers made is kept by content, within bounds, and never believed without its hash."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kbenv.sandbox.judge.artifacts import Artifacts

KEYS = [f"{n:064x}" for n in range(12)]


def put(artifacts: Artifacts, key: str, data: bytes, kind: str = "object") -> None:
    source = os.memfd_create("made")
    try:
        os.write(source, data)
        artifacts.put(key, kind, source)  # type: ignore[arg-type]
    finally:
        os.close(source)


def get(artifacts: Artifacts, key: str) -> tuple[str, bytes] | None:
    found = artifacts.open(key)
    if found is None:
        return None
    with open(found[1], "rb") as file:
        return found[0], file.read()


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def artifacts(folder) -> Artifacts:
    return Artifacts(str(folder), 4000)


def test_what_is_put_is_found_with_its_kind(artifacts):
    put(artifacts, KEYS[0], b"words", "failure")
    assert get(artifacts, KEYS[0]) == ("failure", b"words")
    assert get(artifacts, KEYS[1]) is None


def test_each_number_of_a_count_is_told_once_whoever_shares_the_folder(folder, artifacts):
    other, told = Artifacts(str(folder), 4000), []

    def ask(counting: Artifacts) -> None:
        told.extend(counting.count(KEYS[0]) for _ in range(50))

    threads = [threading.Thread(target=ask, args=[counting]) for counting in (artifacts, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == list(range(1, 201))
    assert artifacts.count(KEYS[1]) == 1
    put(artifacts, KEYS[0], b"words")
    assert get(artifacts, KEYS[0]) == ("object", b"words")


def test_what_is_there_already_stays(artifacts):
    put(artifacts, KEYS[0], b"first")
    put(artifacts, KEYS[0], b"second")
    assert get(artifacts, KEYS[0]) == ("object", b"first")


def test_another_judge_finds_it_too(artifacts, folder):
    put(artifacts, KEYS[0], b"shared")
    assert get(Artifacts(str(folder), 4000), KEYS[0]) == ("object", b"shared")


def test_what_was_changed_on_disk_is_not_believed(artifacts, folder):
    put(artifacts, KEYS[0], b"right")
    (file,) = (folder / KEYS[0]).iterdir()
    file.chmod(0o600)
    file.write_bytes(b"wrong")
    assert get(Artifacts(str(folder), 4000), KEYS[0]) is None
    assert not (folder / KEYS[0]).exists()


@pytest.mark.parametrize("name", ["object", "unknown-00", "object-00"])
def test_a_file_of_another_name_is_not_believed(artifacts, folder, name):
    (folder / KEYS[0]).mkdir()
    (folder / KEYS[0] / name).write_bytes(b"")
    assert get(artifacts, KEYS[0]) is None


def test_the_least_recently_used_go_first(artifacts):
    for key in KEYS[:4]:
        put(artifacts, key, b"x" * 900)
    for n, key in enumerate(KEYS[:4]):
        os.utime(os.path.join(artifacts._folder, key), (n, n))
    assert get(artifacts, KEYS[0]) is not None  # used just now
    put(artifacts, KEYS[4], b"x" * 900)
    kept = [key for key in KEYS[:5] if get(artifacts, key) is not None]
    assert KEYS[0] in kept
    assert KEYS[4] in kept
    assert KEYS[1] not in kept
    assert sum(900 for _ in kept) <= 4000


def test_what_is_too_large_is_not_kept(artifacts):
    put(artifacts, KEYS[0], b"x" * 2001)
    assert get(artifacts, KEYS[0]) is None


def test_a_folder_that_others_may_write_is_refused(folder):
    folder.mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="mode 0700"):
        Artifacts(str(folder), 4000)


def test_many_at_once_leave_one_and_no_remains(folder):
    threads = [
        threading.Thread(target=put, args=(Artifacts(str(folder), 1 << 20), KEYS[n % 3], b"same" * 100))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(os.listdir(folder)) == KEYS[:3]
    assert all(get(Artifacts(str(folder), 1 << 20), key) == ("object", b"same" * 100) for key in KEYS[:3])


def test_a_descriptor_cannot_be_written(artifacts):
    put(artifacts, KEYS[0], b"words")
    found = artifacts.open(KEYS[0])
    assert found is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(found[1], b"x")
    assert os.fstat(found[1]).st_mode & 0o222 == 0
    os.close(found[1])
