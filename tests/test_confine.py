"""Folders of other users are made and wiped as those users, by a process that is root again afterwards."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbenv.sandbox import confine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another uid needs root")

UID, OTHER = 64901, 64902
PR_GET_PDEATHSIG, PR_GET_DUMPABLE = 2, 3


@pytest.fixture
def shared() -> Iterator[Path]:
    """Where everybody may make a folder of his own, as in /tmp."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def identity() -> tuple[object, ...]:
    libc = ctypes.CDLL(None)
    death_signal = ctypes.c_int()
    libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    dumpable = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    return os.getresuid(), os.getresgid(), os.getgroups(), death_signal.value, dumpable


def fill(folder: Path, uid: int = UID) -> None:
    """One of everything that a submission may leave."""
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").write_text("x")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, uid, uid)


def test_a_folder_is_made_for_its_user_alone(shared):
    confine.make_folder_as(UID, str(shared / "new"))
    made = (shared / "new").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (UID, UID, 0o700)


def test_a_folder_is_made_where_a_group_may_write_only_with_that_group(shared):
    os.chown(shared, 0, OTHER)
    shared.chmod(0o1770)
    with pytest.raises(PermissionError):
        confine.make_folder_as(UID, str(shared / "new"))
    confine.make_folder_as(UID, str(shared / "new"), [OTHER])
    assert (shared / "new").stat().st_uid == UID


def test_whoever_acted_as_another_user_is_itself_again(shared):
    before = identity()
    confine.make_folder_as(UID, str(shared / "new"))
    confine.wipe_as(UID, [str(shared)])
    with pytest.raises(FileNotFoundError):
        confine.make_folder_as(UID, str(shared / "no" / "such"))
    assert identity() == before


def test_all_that_a_user_left_is_wiped_and_nobody_elses(shared):
    for name, uid in (("mine", UID), ("another", OTHER)):
        (shared / name).mkdir()
        fill(shared / name, uid)
    (shared / "file").write_text("x")
    os.chown(shared / "file", UID, UID)
    confine.wipe_as(UID, [str(shared)])
    assert [path.name for path in shared.iterdir()] == ["another"]
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("left", ["unreadable", "deep", "many"])
def test_what_takes_more_than_a_few_steps_is_wiped_as_well(left, shared):
    top = shared / "mine"
    top.mkdir()
    fill(top)
    if left == "unreadable":
        (top / "a").chmod(0)
        top.chmod(0)
    elif left == "deep":
        folder = os.open(top, os.O_DIRECTORY)
        for _ in range(3000):  # a path far longer than one may be
            os.mkdir("d" * 20, dir_fd=folder)
            os.chown("d" * 20, UID, UID, dir_fd=folder)
            inner = os.open("d" * 20, os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)
    else:
        for number in range(2 * confine._FEW):
            (top / str(number)).write_text("x")
            os.chown(top / str(number), UID, UID)
    confine.wipe_as(UID, [str(shared)])
    assert list(shared.iterdir()) == []


def test_what_cannot_be_wiped_is_an_error(shared):
    (shared / "mine").mkdir()
    (shared / "mine" / "of root").write_text("x")
    os.chown(shared / "mine", UID, UID)
    (shared / "mine").chmod(0o1777)
    (shared / "mine" / "folder").mkdir(mode=0o700)
    (shared / "mine" / "folder" / "file").write_text("x")
    with pytest.raises(OSError, match=f"what uid {UID} left could not be removed"):
        confine.wipe_as(UID, [str(shared)])
