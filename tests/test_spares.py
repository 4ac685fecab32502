"""Blank runners are out of the reach of the submission's processes, stand still, and are not used when they did not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbenv.sandbox.judge.arm import ArmError
from kbenv.sandbox.judge.plan import CONTEXT_BYTES
from kbenv.sandbox.judge.spares import Spares
from tests.test_plan import GIB, SMALL, plan_of

ROOT = Path(__file__).resolve().parent.parent
UID, WAITING = 59980, 59981
"""Of no judge's jobs."""
REACH = """
import os, signal, torch
import ctypes
blank, own = int("PID"), os.getpid()
reached = []
def attempt(name, step):
    try:
        step()
        reached.append(name)
    except (OSError, ValueError):
        pass
attempt("probe", lambda: os.kill(blank, 0))
attempt("kill", lambda: os.kill(blank, signal.SIGKILL))
attempt("continue", lambda: os.kill(blank, signal.SIGCONT))
attempt("memory", lambda: open(f"/proc/{blank}/mem", "r+b"))
attempt("descriptors", lambda: os.listdir(f"/proc/{blank}/fd"))
attempt("group", lambda: os.killpg(blank, signal.SIGKILL))
if ctypes.CDLL(None).ptrace(16, blank, 0, 0) == 0:
    reached.append("trace")
try:
    os.kill(-1, signal.SIGKILL)  # succeeds even where it reaches nobody
except OSError:
    pass
raise RuntimeError(f"uids {os.getresuid()}, seen {os.path.exists(f'/proc/{blank}')}, reached {reached}")
"""
SCRIPT = """
import json, os, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
import torch
from kbenv.protocol import Limits
from kbenv.sandbox import confine
from kbenv.sandbox.judge.arm import Arm, ArmError
from kbenv.sandbox.judge.setting import Setting
from kbenv.sandbox.judge.proc import descendants, tasks, uids
from kbenv.sandbox.zygote import Zygote

given = json.loads(sys.argv[2])
uid, waiting, contained = given["uid"], given["waiting"], given["contained"]
root = tempfile.mkdtemp(dir="/tmp")
os.chmod(root, 0o711)
seen = {}

def uids_of(arm):
    own = set(descendants(arm.pid)) - (set() if contained else {arm.pid})
    return sorted(set().union(*(uids(task) for task in tasks(own))))

if contained:  # as a container has it: the interpreter can be read by everybody, and nothing of others is there
    assert confine.private_mounts()
    confine.hide(confine.PRIVATE_FOLDERS, confine.needed_paths([sys.argv[1]]))
    root = tempfile.mkdtemp(dir="/tmp")
    os.chmod(root, 0o711)
with Zygote.start(root, contained=contained) as zygote:
    setting = Setting("cpu", 1, Limits().model_dump())
    scratch = zygote.new_scratch("submission", uid, 1 << 20)
    try:
        with Arm(zygote, "submission", setting, uid, scratch, blank=True, waiting_uid=waiting) as blank:
            while not blank.has_answered:
                time.sleep(0.001)
            blank.rest()
            seen["received"] = not blank.has_answered
            seen["waiting"] = uids_of(blank)
            with Arm(zygote, "submission", setting, uid, scratch) as other:
                source = given["source"].replace("PID", str(max(descendants(blank.pid))))
                try:
                    other.ask("load", timeout_s=60.0, problem=source, source=None, entry="Model", seed=0,
                              precision="fp32", tf32={"matmul": False, "conv": False, "rnn": False}, redraw=None)
                except ArmError as e:
                    seen["attempts"] = e.message
            blank.begin()  # the other one is gone, and all of its uid with it
            seen["begun"] = uids_of(blank)
            seen["answers"] = blank.ask("collect", timeout_s=60.0)
        woken = Arm(zygote, "submission", setting, uid, scratch, blank=True, waiting_uid=waiting)
        woken.rest()
        woken.resume()
        woken.send("collect")
        time.sleep(0.5)
        try:
            woken.begin()
            seen["woken"] = "used"
        except ArmError as e:
            seen["woken"] = e.message
        seen["left"] = [pid for pid in descendants(woken.pid) if os.path.exists(f"/proc/{pid}")]
    finally:
        zygote.wipe_scratch("submission")
print(json.dumps(seen))
"""


MANY = """
import json, os, sys, tempfile
sys.path.insert(0, sys.argv[1])
import torch
from kbenv.protocol import Limits
from kbenv.sandbox.judge.setting import Setting
from kbenv.sandbox.judge.place import UIDS, Place
from kbenv.sandbox.judge.proc import descendants, tasks
from kbenv.sandbox.zygote import Zygote

given = json.loads(sys.argv[2])
root = tempfile.mkdtemp(dir="/tmp")
os.chmod(root, 0o711)
with Zygote.start(root, contained=False) as zygote:
    setting = Setting("cpu", given["threads"], Limits().model_dump())
    with Place(zygote, setting, [given["uid"] + 10 + i for i in range(UIDS)]) as place:
        place.spares.complete(["reference", "submission", "null"] * (given["runners"] // 3))
        place.spares.rest()
        threads = len(list(tasks(descendants(zygote.pid))))
        begun = place.spares.take("submission")
        (runner,) = [pid for pid in descendants(begun.pid) if descendants(pid) == [pid]]
        with open(f"/proc/{runner}/limits") as file:
            limit = next(line.split()[2] for line in file if line.startswith("Max processes"))
print(json.dumps({"flags": place.flags, "threads": threads, "limit": int(limit), "processes": setting.processes}))
"""


class FakeArm:
    def __init__(self, role: str, fails: str | None) -> None:
        self.role, self.fails, self.ended = role, fails, False

    def rest(self) -> None:
        if self.fails == "rest":
            raise ArmError("died", "it died")

    def begin(self) -> None:
        if self.fails == "begin":
            raise ArmError("malformed", "it ran for 3 ms while it was stopped")

    def release(self) -> None:
        pass

    def stop(self) -> None:
        self.ended = True


def fake_spares(*fails: str | None) -> tuple[Spares, list[FakeArm], list[str]]:
    arms: list[FakeArm] = []
    flags: list[str] = []

    def start(role: str) -> Any:
        arms.append(FakeArm(role, fails[len(arms)]))
        return arms[-1]

    spares = Spares(start, flags)
    spares.complete(["submission"] * len(fails))
    return spares, arms, flags


@pytest.fixture(scope="module", params=[False, True], ids=["namespaces", "contained"])
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What happened between a blank runner and a submission of the same role, each way of keeping them apart."""
    if os.geteuid() != 0:
        pytest.skip("another uid needs root")
    given = {"uid": UID, "waiting": WAITING, "contained": request.param, "source": REACH}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT), json.dumps(given)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_submissions_processes_cannot_reach_a_blank_runner_of_its_role(seen):
    assert seen["waiting"] == [UID, WAITING]
    assert f"uids ({UID}, {UID}, {UID})" in seen["attempts"]
    assert seen["attempts"].endswith("reached []"), seen["attempts"]


def test_a_blank_runner_outlives_the_one_before_it_and_has_one_uid_from_its_turn_on(seen):
    assert seen["begun"] == [UID]
    assert seen["answers"] == {}


def test_that_a_blank_runner_is_ready_is_seen_before_it_is_received(seen):
    assert seen["received"]


def test_a_blank_runner_that_ran_is_ended_and_not_used(seen):
    assert "while it was stopped" in seen["woken"]
    assert seen["left"] == []


def test_a_blank_runner_that_is_no_good_is_passed_over_and_the_verdict_says_so():
    spares, arms, flags = fake_spares("rest", "begin", None)
    spares.rest()
    assert spares.take("submission") is arms[2]
    assert [flag.removeprefix("a blank runner of the submission was not used: ") for flag in flags] == [
        "it died", "it ran for 3 ms while it was stopped",
    ]  # fmt: skip
    assert spares.take("submission") is None
    assert spares.take("reference") is None


def test_blank_runners_that_are_left_are_stopped():
    spares, arms, _ = fake_spares(None, None)
    spares.stop()
    assert [arm.ended for arm in arms] == [True, True]
    assert not spares.has("submission")


def test_blank_runners_take_no_memory_that_the_plan_needs():
    plan = plan_of(SMALL)
    assert plan.room_for_contexts * CONTEXT_BYTES + plan.need_bytes <= plan.have_bytes
    assert plan.room_for_contexts > 6
    small = dict(input_bytes=1 << 20, output_bytes=1 << 20, work_bytes=GIB)
    rooms = [plan_of(replace(SMALL, free_bytes=gib * GIB, **small)).room_for_contexts for gib in (40, 8, 6)]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[-1] < 6


def test_where_slots_are_lent_in_turn_there_is_no_room_for_blank_runners():
    demand = replace(SMALL, input_bytes=6 * GIB, output_bytes=6 * GIB, work_bytes=6 * GIB, free_bytes=23 * GIB)
    plan = plan_of(demand)
    assert (plan.exclusive, plan.room_for_contexts) == (True, 0)


def test_many_runners_wait_under_one_uid_on_a_machine_of_many_processors():
    if os.geteuid() != 0:
        pytest.skip("another uid needs root")
    given = {"uid": UID, "waiting": WAITING, "runners": 9, "threads": 64}
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(ROOT), json.dumps(given)],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["flags"] == []
    assert seen["threads"] > 9 * 63  # more than a submission may have
    assert seen["limit"] == seen["processes"] < seen["threads"]
