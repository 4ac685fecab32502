"""What a submission tries inside a real container gets it nowhere, and harms neither the judge nor the next job.

Each attempt is made for real. `unharmed` means: nothing is left in the container, and the next honest submission is
credited by the same judge in the same container.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from kbenv.sandbox import seccomp
from kbenv.verdict import Stage, Status, Verdict
from tests.docker.warm import Warm, unharmed
from tests.judge.corpus import TESTS, load_case
from tests.judge.inside import DISTURBANCES, RELU, WRONG, make_submission, run_inside

pytestmark = pytest.mark.docker

SCRATCH = "/run/kbenv/scratch"
CALLS_IN_CHECKS = 3
"""Two in public, one hidden: the rules of `warm`."""
OTHERS = """
others = {}
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/status") as file:
            uid = int(next(line for line in file if line.startswith("Uid:")).split()[1])
    except OSError:
        continue
    if uid != os.getuid():
        others[int(name)] = uid
seen["others"] = others
"""
"""Init, judge, fork server; the runners of the reference and of nothing."""
NUMBERS = f"numbers = json.loads('{json.dumps({m: t | seccomp._COMMON for m, t in seccomp._DENIED.items()})}')"


def look(warm: Warm, code: str) -> dict[str, Any]:
    """What `code` has seen of the processes of others; at least those five are there."""
    seen = run_inside(warm.evaluator, f"{OTHERS}\n{code}")
    uids = list(seen.pop("others").values())
    assert uids.count(0) >= 3
    assert len(set(uids)) == 3
    return seen


def judge(warm: Warm, code: str, answer: str = WRONG, *, at_call: int = 1) -> Verdict:
    return warm.evaluator.evaluate(RELU, make_submission(code, answer, at_call=at_call))


# -- other processes --------------------------------------------------------------------------------------------------


def test_nothing_of_another_process_can_be_read(warm: Warm):
    seen = look(
        warm,
        """
def read(path):
    with open(path, "rb", buffering=0) as file:
        file.read(64)


def look_around(path):
    for name in os.listdir(path):
        os.readlink(os.path.join(path, name))


seen["read"] = []
for pid in others:
    for name in ("environ", "mem", "maps", "smaps", "auxv", "pagemap", "syscall", "stack", "io", "map_files/0-1"):
        if refusal(read, f"/proc/{pid}/{name}") is None:
            seen["read"].append([pid, name])
    for name in ("cwd", "root", "exe", "ns/net", "ns/mnt", *(f"fd/{number}" for number in range(16))):
        for action in (os.readlink, os.listdir, read):
            if refusal(action, f"/proc/{pid}/{name}") is None:
                seen["read"].append([pid, name])
    for name in ("fd", "map_files", f"task/{pid}/fd", "cwd", "root", "root/run/kbenv", "fdinfo"):
        if refusal(look_around, f"/proc/{pid}/{name}") is None:
            seen["read"].append([pid, name])
""",
    )
    assert seen["read"] == []


def test_no_environment_in_the_container_can_be_read_but_a_submissions_own(warm: Warm):
    seen = look(
        warm,
        """
seen["read"] = []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ") as file:
            if file.read() and name != str(os.getpid()):
                seen["read"].append(name)
    except OSError:
        pass
""",
    )
    assert seen["read"] == []


def test_what_can_be_read_of_other_processes_tells_no_secret(warm: Warm):
    """Their command lines, above all: no seed, no path of scratch, nothing of the job is in one."""
    seen = look(
        warm,
        """
words = set()
for pid in others:
    with open(f"/proc/{pid}/cmdline") as file:
        words.update(file.read().split("\\0"))
seen["words"] = sorted(words)
""",
    )
    known = re.compile(r"(/\S*/)?(docker-init|tini|python3?(\.\d+)?|boot\.py)|--|-I|-c|-u|judge|contained|/run/kbenv|")
    assert [word for word in seen["words"] if not known.fullmatch(word) and "def take(count)" not in word] == []


def test_no_other_process_can_be_signalled_traced_slowed_down_or_limited(warm: Warm):
    seen = look(
        warm,
        f"""
{NUMBERS}
numbers = numbers[os.uname().machine]
seen["done"] = []
for pid in others:
    handle = os.pidfd_open(pid)
    attempts = {{
        **{{f"signal {{number}}": (os.kill, pid, number) for number in (0, *signal.valid_signals())}},
        "pidfd signal": (signal.pidfd_send_signal, handle, signal.SIGKILL),
        "pidfd_getfd": (call, numbers["pidfd_getfd"], handle, 0, 0),
        "ptrace attach": (call, numbers["ptrace"], 16, pid, 0, 0),
        "ptrace seize": (call, numbers["ptrace"], 0x4206, pid, 0, 0),
        "process_vm_readv": (call, numbers["process_vm_readv"], pid, 0, 0, 0, 0, 0),
        "process_vm_writev": (call, numbers["process_vm_writev"], pid, 0, 0, 0, 0, 0),
        "kcmp": (call, numbers["kcmp"], os.getpid(), pid, 0, 0, 0),
        "limit": (resource.prlimit, pid, resource.RLIMIT_NOFILE, (1, 1)),
        "limit of time": (resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1)),
        "processors": (os.sched_setaffinity, pid, {{0}}),
        "scheduler": (os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0)),
        "priority": (os.setpriority, os.PRIO_PROCESS, pid, 19),
        "session": (os.setpgid, pid, 0),
        "namespaces": (os.open, f"/proc/{{pid}}/ns/pid", os.O_RDONLY),
    }}
    settings = ("oom_score_adj", "clear_refs", "comm", "coredump_filter", "attr/current", "timerslack_ns")
    for name in ("mem", "fd/0", "fd/1", "fd/2", *settings):
        attempts[f"write {{name}}"] = (write, f"/proc/{{pid}}/{{name}}", "0")
    for name, (action, *arguments) in attempts.items():
        if refusal(action, *arguments) is None:
            seen["done"].append([pid, name])
""",
    )
    assert seen["done"] == []


def test_the_reference_keeps_running_while_a_submission_tries_to_stop_it(warm: Warm):
    """All in the background, all the time, while the reference is loaded, drawn from, called and timed."""
    hostile = """
    daemon(*python('''
        import os, signal, time
        while True:
            for name in filter(str.isdigit, os.listdir("/proc")):
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    try:
                        if os.stat(f"/proc/{name}").st_uid != os.getuid():
                            os.kill(int(name), number)
                    except OSError:
                        pass
    '''))
    """
    with unharmed(warm):
        verdict = judge(warm, hostile, "torch.relu(x)")
        assert verdict.status is Status.PASSED, verdict.message


def test_to_kill_all_that_can_be_killed_is_to_kill_oneself(warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, "os.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert verdict.status is Status.OUT_OF_MEMORY, "what a SIGKILL that nobody of ours sent is taken for"


# -- privileges -------------------------------------------------------------------------------------------------------


def test_no_user_but_its_own_can_be_had(warm: Warm):
    seen = look(
        warm,
        """
uids = [0, 1, *set(others.values())]
attempts = [(action, uid) for action in (os.setuid, os.setgid, os.seteuid, os.setegid) for uid in uids]
attempts += [(os.setresuid, uid, uid, uid) for uid in uids] + [(os.setresgid, uid, uid, uid) for uid in uids]
attempts += [(os.setgroups, [uid]) for uid in uids]
seen["done"] = [[action.__name__, *arguments] for action, *arguments in attempts if refusal(action, *arguments) is None]
libc = ctypes.CDLL(None, use_errno=True)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 3, *[0] * 3)
seen["capabilities"] = libc.capset(header, data)
seen["ambient"] = libc.prctl(47, 2, 7, 0, 0)
seen["ids"] = [*os.getresuid(), *os.getresgid()]
""",
    )
    assert seen["done"] == []
    assert (seen["capabilities"], seen["ambient"]) == (-1, -1)
    assert len(set(seen["ids"])) == 1


def test_setuid_programs_give_nothing(warm: Warm):
    """Those of the image, and a copy in scratch with the bit set by its owner."""
    seen = run_inside(
        warm.evaluator,
        """
        import shutil

        def as_whom(*command):
            found = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)
            return found.stdout.strip()

        programs = []
        for folder in os.environ["PATH"].split(":") + ["/usr/lib/openssh", "/usr/libexec"]:
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                facts = os.stat(os.path.join(folder, name), follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode) and facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
                    programs.append(os.path.join(folder, name))
        seen["programs"] = programs
        seen["gained"] = []
        for program in programs:
            child = subprocess.Popen(
                [program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                with open(f"/proc/{child.pid}/status") as file:
                    uids = next(line for line in file if line.startswith("Uid:")).split()[1:]
                if set(uids) != {str(os.getuid())}:
                    seen["gained"].append([program, *uids])
            except (OSError, StopIteration):
                pass
            child.kill()
            child.wait()
        seen["su"] = as_whom("su", "-c", "id -u") if shutil.which("su") else ""
        shutil.copy(shutil.which("id"), "id")
        os.chmod("id", 0o6755)
        seen["copy"] = as_whom("./id", "-u")
        seen["own"] = str(os.getuid())
        """,
    )
    assert seen["gained"] == []
    assert seen["su"] != "0"
    assert seen["copy"] == seen["own"]


def test_its_own_oom_score_is_all_that_it_can_lower(warm: Warm):
    seen = look(
        warm,
        """
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: the files in /proc/self become its own
seen["below what the container began with"] = refusal(write, "/proc/self/oom_score_adj", "-1")
seen["others"] = [refusal(write, f"/proc/{pid}/oom_score_adj", "1000") for pid in others]
seen["others"] = dict(zip(others, others.values())) if None not in seen["others"] else {}
""",
    )
    assert seen["below what the container began with"] == "EACCES"


# -- what is left for the next job ------------------------------------------------------------------------------------


PLANTS = {
    "files": """
        for folder in ("/tmp", "/dev/shm", "/dev/mqueue", "/run/kbenv/scratch", os.getcwd()):
            write(f"{folder}/left-behind", "x" if folder != "/dev/mqueue" else "")
            os.chmod(f"{folder}/left-behind", 0o777)
    """,
    "closed folders": """
        for folder in ("/tmp", "/run/kbenv/scratch", os.getcwd()):
            os.makedirs(f"{folder}/closed/inside/further")
            write(f"{folder}/closed/inside/further/file", "x")
            for path in ("closed/inside/further/file", "closed/inside/further", "closed/inside", "closed"):
                os.chmod(f"{folder}/{path}", 0)
    """,
    "deep folders": """
        for folder in ("/tmp", os.getcwd()):
            os.chdir(folder)
            for _ in range(3000):
                os.mkdir("deeper")
                os.chdir("deeper")
    """,
    "many files": """
        for number in range(40_000):
            os.close(os.open(f"/tmp/{number:0250d}", os.O_CREAT | os.O_WRONLY))
    """,
    "links to all that there is": """
        for number in range(5000):
            os.symlink("/", f"/tmp/link-{number}")
        os.symlink("/proc", "/dev/shm/processes")
        os.symlink("/nowhere", "/tmp/-rf")
        os.link(sys.modules["submission"].__file__, "/run/kbenv/scratch/linked")
        os.mkfifo("/tmp/pipe")
        socket.socket(socket.AF_UNIX).bind("/tmp/socket")
        os.close(os.open(b"/tmp/\\xff\\n name", os.O_CREAT | os.O_WRONLY))
    """,
    "message queues": """
        realtime = ctypes.CDLL("librt.so.1", use_errno=True)
        for number in range(5):
            if realtime.mq_open(f"/queue-{number}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None) < 0:
                raise OSError(ctypes.get_errno(), "mq_open")
        if not os.listdir("/dev/mqueue"):
            raise AssertionError
    """,
    "daemon that listens": """
        daemon(*python('''
            import signal, socket
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
            for sock, name in zip(sockets, ("\\\\0kbenv-left-behind", "/tmp/left-behind.sock")):
                sock.bind(name)
                sock.listen()
            while True:
                sockets[0].accept()
        '''))
        deadline = time.monotonic() + 5
        while not os.path.exists("/tmp/left-behind.sock"):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.01)
        socket.socket(socket.AF_UNIX).connect("\\0kbenv-left-behind")
    """,
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_nothing_is_left_for_the_next_job(plant: str, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, plant)
        assert verdict.status is Status.WRONG_VALUE, f"not planted: {verdict.message}"


def test_objects_that_outlive_their_process_cannot_be_made(warm: Warm):
    """The kernel would hold them, and their memory, until somebody removes them."""
    seen = run_inside(
        warm.evaluator,
        """
        libc = ctypes.CDLL(None, use_errno=True)

        def check(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), "")

        seen["shared memory"] = refusal(lambda: check(libc.shmget(1, 4096, 0o1666)))
        seen["semaphores"] = refusal(lambda: check(libc.semget(1, 1, 0o1666)))
        seen["messages"] = refusal(lambda: check(libc.msgget(1, 0o1666)))
        """,
    )
    assert set(seen.values()) == {"EPERM"}


def test_scratch_of_the_reference_can_be_neither_listed_nor_guessed(warm: Warm):
    seen = run_inside(
        warm.evaluator,
        f"""
        own = os.path.basename(os.environ["HOME"])
        seen["own"] = own
        for path in ("{SCRATCH}", "{SCRATCH}/trusted"):
            seen[path] = refusal(os.listdir, path)
        seen["made"] = refusal(os.mkdir, "{SCRATCH}/trusted/planted")
        seen["same name"] = [
            refusal(os.listdir, f"{SCRATCH}/{{folder}}{{own.replace('submission', role)}}")
            for role in ("reference", "null") for folder in ("", "trusted/")
        ]
        """,
    )
    assert seen[SCRATCH] == seen[f"{SCRATCH}/trusted"] == seen["made"] == "EACCES"
    assert re.fullmatch(r"submission-[0-9a-f]{16}", seen["own"])
    assert set(seen["same name"]) == {"ENOENT"}


# -- more than there is -----------------------------------------------------------------------------------------------


def test_a_full_scratch_is_the_submissions_own_failure(warm: Warm):
    with unharmed(warm):
        verdict = judge(
            warm,
            """
            with open("filler", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
            """,
        )
    assert verdict.status is Status.RUNTIME_ERROR
    assert "No space left on device" in verdict.message


def test_the_reference_has_room_when_a_submission_has_filled_all_that_it_can(warm: Warm):
    """And goes on filling it: the reference is started anew, and writes to its scratch, while the timing goes on."""
    fill = """
    def fill():
        files = []
        for folder in ("/tmp", "/dev/shm", "/run/kbenv/scratch"):
            try:
                number = 0
                while True:
                    os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
                    number += 1
            except OSError:
                pass
        for folder in ("/run/kbenv/scratch", os.getcwd()):
            files.append(os.open(f"{folder}/0", os.O_CREAT | os.O_WRONLY | os.O_APPEND))
            try:
                while True:
                    os.write(files[-1], bytes(1 << 20))
            except OSError:
                pass
        os.write(writing, b"full")
        while True:
            for file in files:
                refusal(os.write, file, bytes(4096))


    reading, writing = os.pipe()
    os.unlink("submission.py")  # the last thing that this one needs
    write("0", "")
    if os.fork() == 0:
        os.setsid()
        fill()
    os.read(reading, 4)
    """
    with unharmed(warm):
        verdict = judge(warm, fill, "torch.relu(x)")
    assert "timing" in verdict.seconds, verdict.message
    assert verdict.status in (Status.PASSED, Status.RUNTIME_ERROR), verdict.message


HOGS = {
    "in one process": """
        blocks = []
        while True:
            blocks.append(b"x" * (1 << 24))
    """,
    "in many small processes": """
        for _ in range(200):
            if os.fork() == 0:
                block = b"x" * (1 << 26)
                signal.pause()
        signal.pause()
    """,
    "in files": """
        for folder in ("/tmp", "/dev/shm", os.getcwd()):
            with open(f"{folder}/filler", "wb") as file:
                refusal(lambda: [file.write(bytes(1 << 20)) for _ in range(1 << 11)])
        children = [os.fork() for _ in range(3)]
        block = b"x" * (1 << 30)
        signal.pause()
    """,
    "in memory files that no process maps": """
        files = []
        while True:
            files.append(os.memfd_create("hog"))
            for _ in range(1000):
                os.write(files[-1], bytes(1 << 20))
    """,
    "in memory files, with the others named first to the kernel": """
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
        write("/proc/self/oom_score_adj", "0")
        daemon(*python('''
            import os
            open("/proc/self/oom_score_adj", "w").write("0")
            files = []
            while True:
                files.append(os.memfd_create("hog"))
                for _ in range(1000):
                    os.write(files[-1], bytes(1 << 20))
        '''))
        signal.pause()
    """,
    "in sockets": """
        for _ in range(100):
            if os.fork() == 0:
                pairs = []
                while True:
                    try:
                        pairs.append(socket.socketpair())
                        pairs[-1][0].setblocking(False)
                        while True:
                            pairs[-1][0].send(bytes(1 << 16))
                    except BlockingIOError:
                        pass
                    except OSError:
                        signal.pause()
        signal.pause()
    """,
}


@pytest.mark.parametrize("hog", HOGS.values(), ids=HOGS)
def test_memory_past_the_limit_is_the_submissions_and_the_container_stays(hog: str, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, hog)
    assert verdict.status is Status.OUT_OF_MEMORY, verdict.message


HELD_BY_THE_KERNEL = """
def held():
    # Of the container's memory, what the kernel needs for itself, as a share: version 2, else version 1, of cgroups.
    for folder, limit, usage in (
        ("/sys/fs/cgroup", "memory.max", "memory.stat"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.kmem.usage_in_bytes"),
    ):
        if os.path.exists(f"{folder}/{limit}"):
            with open(f"{folder}/{usage}") as used, open(f"{folder}/{limit}") as most:
                words = used.read().split()
                number = words[words.index("slab") + 1] if "slab" in words else words[0]
                return int(number) / int(most.read())


"""


def test_what_the_kernel_remembers_of_a_job_does_not_count_against_the_next(warm: Warm):
    """Names looked for in vain stay in its memory, which is the container's: a fresh container is the remedy."""
    verdict = judge(
        warm,
        f"""{HELD_BY_THE_KERNEL}
def look_for(first):
    for number in range(first, first + 120_000):
        refusal(os.stat, f"/usr/{{number:0250d}}")


children = []
for first in range(0, 480_000, 120_000):
    children.append(os.fork())
    if not children[-1]:
        look_for(first)
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
if held() < 0.1:
    raise AssertionError(held())
""",
    )
    assert verdict.status is Status.WRONG_VALUE, f"not remembered: {verdict.message}"
    with unharmed(warm):
        assert warm.run_as_judge(f"{HELD_BY_THE_KERNEL}\nseen['held'] = held()")["held"] < 0.1


FORKS = {
    "bomb": "while True:\n    refusal(os.fork)",
    "processes that never stay": """
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                pass
    """,
    "threads": """
        import threading

        while True:
            try:
                threading.Thread(target=signal.pause, daemon=True).start()
            except RuntimeError:
                pass
    """,
}


@pytest.mark.parametrize("forks", FORKS.values(), ids=FORKS)
def test_processes_without_end_end(forks: str, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, forks)
    statuses = (Status.TIMEOUT, Status.RUNTIME_ERROR, Status.TAMPERED, Status.OUT_OF_MEMORY)
    assert verdict.status in statuses, verdict.message


SLEEPERS = {
    "asleep": "time.sleep(1000)",
    "deaf": """
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            pass
    """,
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("sleeper", SLEEPERS.values(), ids=SLEEPERS)
def test_a_call_without_end_is_a_timeout(sleeper: str, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, sleeper, "torch.relu(x)", at_call=2)
    assert verdict.status is Status.TIMEOUT, verdict.message


def test_a_gigabyte_of_output_is_bounded_and_takes_no_time(warm: Warm):
    limits = warm.evaluator.protocol.limits
    started = time.monotonic()
    with unharmed(warm):
        verdict = judge(warm, "block = b'x' * (1 << 20)\nfor _ in range(1 << 10):\n    os.write(1, block)")
    assert verdict.status is Status.WRONG_VALUE, verdict.message
    assert 1000 < len((verdict.output or "").encode()) < limits.output_bytes + 200
    assert time.monotonic() - started < 30


# -- ends that come too early or too late -----------------------------------------------------------------------------


DAEMONS = {
    "of its own code": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                    signal.signal(number, signal.SIG_IGN)
                while True:
                    signal.pause()
            os._exit(0)
        os.wait()
    """,
    "of another program": "daemon('/bin/sleep', '1000')",
    "many": "for _ in range(50):\n    daemon('/bin/sleep', '1000')",
}


@pytest.mark.parametrize("code", DAEMONS.values(), ids=DAEMONS)
def test_no_daemon_outlives_its_job(code: str, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, code)
    assert verdict.status is Status.WRONG_VALUE, verdict.message


def test_a_daemon_that_kills_whoever_comes_to_kill_it_dies(warm: Warm):
    """Also of its own uid is the process that ends it, for a moment."""
    with unharmed(warm):
        verdict = judge(
            warm,
            """
            import threading

            def kill_all():
                kill = ctypes.CDLL(None).kill
                while True:
                    for _ in range(100_000):
                        kill(-1, signal.SIGKILL)

            if os.fork() == 0:
                os.setsid()
                os.closerange(0, 1024)
                for _ in range(3):
                    threading.Thread(target=kill_all).start()
                kill_all()
            signal.pause()
            """,
        )
    assert not verdict.credited


ENDS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exited": "os._exit(0)",
    "crashed": "ctypes.string_at(0)",
    "aborted": "os.abort()",
    "without descriptors": "os.closerange(0, 1024)",
    "with descriptors that mean nothing": """
        devnull = os.open(os.devnull, os.O_RDWR)
        for name in os.listdir("/proc/self/fd"):
            refusal(os.dup2, devnull, int(name))
    """,
}


@pytest.mark.parametrize("stage", [Stage.STANDARD, Stage.TIMING])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_early_end_is_the_submissions(end: str, stage: Stage, warm: Warm):
    with unharmed(warm):
        verdict = judge(warm, end, "torch.relu(x)", at_call=1 if stage is Stage.STANDARD else CALLS_IN_CHECKS + 1)
    assert verdict.stage is stage
    assert verdict.status in (Status.RUNTIME_ERROR, Status.ILLEGAL_ACCESS, Status.OUT_OF_MEMORY, Status.TAMPERED)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_the_next_honest_submission_is_credited_by_the_same_judge(name: str, warm: Warm):
    case = load_case(TESTS / name)
    with unharmed(warm):
        verdict = warm.evaluator.evaluate(case.problem, case.source)
    assert verdict.status.value in case.expect or "no_effect" in case.expect, verdict.message
