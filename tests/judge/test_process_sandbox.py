"""The process sandbox holds: a submission sees nothing that it should not, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kbenv.sandbox.judge.presence import UNSEEN
from kbenv.verdict import Status, Verdict
from tests.judge.corpus import TESTS, Case, at_small_sizes, load_case
from tests.judge.evaluators import SECRET
from tests.judge.inside import DISTURBANCES, HONEST, SMALL_RELU, run_inside


def exploit(name: str) -> Case:
    return at_small_sizes(load_case(TESTS / "exploits" / f"{name}.py"))


def processes_of(uid: int) -> list[str]:
    """Live processes whose real uid is `uid`, from the host's /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if int(facts["Uid"].split()[0]) == uid and not facts["State"].strip().startswith("Z"):
            found.append(f"{folder.name} {facts['Name'].strip()}")
    return found


def isolation_of(verdict: Verdict):
    assert verdict.isolation is not None
    return verdict.isolation


LONG = ("exploits/i6_stop_itself.py", "exploits/i6_infinite_loop_in_c.py")
"""Of the disturbances, those that run into a limit on time."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.corpus, pytest.mark.corpus_2] if name in LONG else [])
        for name in DISTURBANCES
    ],
)
def test_the_next_honest_submission_is_credited_after(name, get_evaluator):
    case = at_small_sizes(load_case(TESTS / name))
    evaluator = get_evaluator("verified tight")
    disturbed = evaluator.evaluate(case.problem, case.source)
    uid = isolation_of(disturbed).uid
    if uid is not None:
        assert processes_of(uid) == []  # daemons, orphans and sleepers too
    assert sum(disturbed.seconds.values()) < 30
    verdict = evaluator.evaluate(SMALL_RELU, HONEST.source)
    assert verdict.credited, verdict.message
    assert "PLANTED" not in (verdict.output or "")


def test_scratch_of_one_job_is_not_seen_by_the_next(get_evaluator):
    planted = run_inside(
        get_evaluator("verified tight"),
        """
        import os, pathlib
        for folder in {os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"], "/tmp", "/var/tmp", "/dev/shm"}:
            try:
                (pathlib.Path(folder) / "left-behind.txt").write_text("x")
                seen[folder] = True
            except OSError:
                pass
        """,
    )
    assert planted, "not even its own scratch was writable"
    found = run_inside(
        get_evaluator("verified tight"),
        """
        import os, pathlib
        folders = {os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"], "/tmp", "/var/tmp", "/dev/shm"}
        seen["left"] = [str(f) for folder in folders for f in pathlib.Path(folder).glob("left-behind.txt")]
        """,
    )
    assert found["left"] == []


def test_nothing_is_planted_on_the_host(get_evaluator):
    for name in ("i6_plant_outside", "i5_plant_modules", "i4_pickle_frames"):
        case = exploit(name)
        get_evaluator("verified tight").evaluate(case.problem, case.source)
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue", "/"):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        assert not {"kbenv-planted-by-submission", "kbenv-pickle-was-loaded", "sitecustomize.py"} & set(names)


def test_no_secret_of_the_hosts_environment_reaches_a_submission(get_evaluator):
    assert SECRET in os.environ
    case = exploit("i2_environment")
    verdict = get_evaluator("verified tight").evaluate(case.problem, case.source)
    assert verdict.status is Status.RUNTIME_ERROR, verdict.output
    environment = run_inside(get_evaluator("verified tight"), "import os\nseen.update(os.environ)")
    assert not any(SECRET in name or SECRET in value for name, value in environment.items())
    assert environment["HOME"] != os.environ.get("HOME")


def test_the_judges_memory_and_environment_cannot_be_read(get_evaluator):
    case = exploit("i2_read_judge")
    verdict = get_evaluator("verified tight").evaluate(case.problem, case.source)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "LEAK" not in (verdict.output or ""), verdict.output


def test_there_is_no_network(get_evaluator):
    case = exploit("i8_network")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answered = threading.Event()
        listener.settimeout(0.2)
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                try:
                    listener.accept()[0].close()
                    answered.set()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            source = case.source.replace("PORT = 0", f"PORT = {listener.getsockname()[1]}")
            verdict = get_evaluator("verified tight").evaluate(case.problem, source)
        finally:
            stop.set()
            thread.join()
    assert not answered.is_set()
    assert verdict.status is Status.RUNTIME_ERROR, verdict.output


TALKS_TO_ITSELF = """
import socket
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=1).close()
            server.accept()[0].close()
        return torch.relu(x)
"""


def test_a_loopback_of_its_own_is_all_the_network_that_there_is(get_evaluator):
    verdict = get_evaluator("verified tight").evaluate(SMALL_RELU, TALKS_TO_ITSELF)
    own = "network" in isolation_of(verdict).namespaces  # else sockets of the internet families are denied
    assert verdict.status is (Status.PASSED if own else Status.RUNTIME_ERROR), verdict.message


def test_a_submission_is_another_user_without_privileges(get_evaluator):
    if os.geteuid() != 0:
        pytest.skip("another uid needs root")
    seen = run_inside(
        get_evaluator("verified tight"),
        """
        import os
        seen["uids"] = os.getresuid()
        seen["gids"] = os.getresgid()
        seen["groups"] = os.getgroups()
        with open("/proc/self/status") as status:
            facts = dict(line.split(":", 1) for line in status)
        seen["capabilities"] = [int(facts[name], 16) for name in ("CapPrm", "CapEff", "CapAmb", "CapInh")]
        seen["no_new_privs"] = facts["NoNewPrivs"].strip()
        seen["seccomp"] = facts["Seccomp"].strip()
        """,
    )
    assert 0 not in seen["uids"] + seen["gids"]
    assert len(set(seen["uids"])) == 1
    assert seen["groups"] == []
    assert seen["capabilities"] == [0, 0, 0, 0]
    assert seen["no_new_privs"] == "1"
    assert seen["seccomp"] == "2"


def test_a_submission_inherits_only_its_own_channel(get_evaluator):
    seen = run_inside(
        get_evaluator("verified tight"),
        """
        import os
        for name in os.listdir("/proc/self/fd"):
            try:
                seen[name] = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                pass
        """,
    )
    sockets = [target for target in seen.values() if target.startswith("socket:")]
    assert len(sockets) == 1
    files = [target for target in seen.values() if target.startswith("/")]
    assert [path for path in files if not path.startswith(("/dev/", "/proc/", "/memfd:"))] == []


def test_isolation_is_full_for_root(get_evaluator):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    isolation = isolation_of(get_evaluator("verified tight").evaluate(SMALL_RELU, HONEST.source))
    if isolation.missing:
        pytest.skip(f"this machine lacks: {'; '.join(isolation.missing)}")
    assert isolation.sandbox == "process"
    assert isolation.level == "full"
    assert isolation.uid
    assert isolation.seccomp


def test_what_a_submission_prints_is_bounded(get_evaluator):
    case = exploit("i9_fake_feedback")
    evaluator = get_evaluator("verified tight")
    verdict = evaluator.evaluate(case.problem, case.source)
    assert verdict.output
    assert len(verdict.output.encode()) <= evaluator.protocol.limits.output_bytes + 200


def test_what_a_submission_prints_before_it_fails_is_kept_without_a_flush(get_evaluator):
    source = (
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        print('rows:', x.shape[0])\n        raise ValueError('too many rows')\n"
    )
    verdict = get_evaluator("verified tight").evaluate(SMALL_RELU, source)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "rows:" in (verdict.output or "")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_the_runners_of_the_second_pair_were_blank_until_their_turn(get_evaluator, device):
    verdict = get_evaluator("verified tight", device).evaluate(SMALL_RELU, HONEST.source)
    assert verdict.credited, verdict.message
    assert verdict.measurement is not None
    assert verdict.measurement.runner_pairs == 2
    assert [flag for flag in verdict.flags if "blank" in flag] == []


def test_as_root_the_judge_sees_outputs_in_a_runners_memory_and_elsewhere_the_verdict_says_that_it_does_not(
    get_evaluator,
):
    verdict = get_evaluator("verified tight").evaluate(HONEST.problem, HONEST.source)
    assert (UNSEEN in verdict.flags) == (os.geteuid() != 0)
    case = exploit("t12_small_inputs_kept")
    verdict = get_evaluator("hardened tight").evaluate(case.problem, case.source)
    assert verdict.credited == (os.geteuid() != 0)
    assert verdict.credited or "not there yet" in verdict.message


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_what_the_first_process_set_is_not_set_in_the_second(get_evaluator, device):
    """Every process of a submission begins without anything of the one before it, blank as it waited beside it."""
    mark = """import builtins, os
if hasattr(builtins, "seen_before") or "SEEN_BEFORE" in os.environ:
    raise RuntimeError("a process of before")
builtins.seen_before = True
os.environ["SEEN_BEFORE"] = "1"
"""
    source = HONEST.source.replace("import torch\n", f"import torch\n{mark}", 1)
    assert mark in source
    verdict = get_evaluator("verified tight", device).evaluate(SMALL_RELU, source)
    assert verdict.credited, verdict.message
