"""Every control that a container has by default is enforced: seen from inside, as the judge or as a submission.

"As the judge" is as root in the judge's container, with the judge's capabilities and its system call filter.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbenv.evaluator import CPU_THREADS, Evaluator
from kbenv.sandbox import seccomp
from kbenv.sandbox.docker import CAPABILITIES
from kbenv.sandbox.engine import facts_of
from kbenv.sandbox.process import judge_environment
from kbenv.verdict import Status
from tests.docker.traces import until
from tests.docker.warm import Warm
from tests.judge.evaluators import DOCKER, SECRET, make_protocol
from tests.judge.inside import RELU, make_submission, run_inside

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker

CAPABILITY_BITS = {"KILL": 5, "SETGID": 6, "SETUID": 7}
SCRATCH = "/run/kbenv/scratch"
CGROUP = """
def cgroup(controller, *names):
    # The first of the files that there is: version 2 has one folder for all, version 1 one for each controller.
    for name in names:
        for folder in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controller}"):
            if os.path.exists(f"{folder}/{name}"):
                with open(f"{folder}/{name}") as file:
                    return file.read().split()


"""
PROCESSES = """
processes = []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/status") as file:
            facts = {key: value.split() for key, _, value in (line.partition(":") for line in file)}
        with open(f"/proc/{name}/cmdline") as file:
            command = file.read().split("\\0")
    except OSError:
        continue
    if facts["State"][0] not in "ZX":
        processes.append((int(name), command, facts))
"""


# -- network ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[tuple[list[str], int, str, threading.Event]]:
    """Sockets of this machine that containers must not reach: addresses, port, an abstract name; set when reached."""
    name = f"kbenv-{uuid.uuid4().hex}"
    reached = threading.Event()
    abstract = socket.socket(socket.AF_UNIX)
    with socket.create_server(("0.0.0.0", 0)) as internet, abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        addresses = {"127.0.0.1", *(entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None))}
        threads = [threading.Thread(target=_accept, args=(sock, reached)) for sock in (internet, abstract)]
        for thread in threads:
            thread.start()
        try:
            yield sorted(map(str, addresses)), internet.getsockname()[1], name, reached
        finally:
            for sock in (internet, abstract):
                sock.shutdown(socket.SHUT_RDWR)  # wakes its thread
            for thread in threads:
                thread.join()


def _accept(sock: socket.socket, reached: threading.Event) -> None:
    try:
        sock.accept()[0].close()
    except OSError:
        return
    reached.set()


def test_there_is_no_network(run, listener):
    addresses, port, name, reached = listener
    seen = run(f"""
        def connect(family, address):
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(2)
                sock.connect(address)


        seen["interfaces"] = os.listdir("/sys/class/net")
        with open("/proc/net/route") as routes:
            seen["routes"] = routes.read().splitlines()[1:]
        places = [(address, {port}) for address in {addresses}]
        places += [("1.1.1.1", 53), ("10.0.0.1", 80), ("169.254.169.254", 80), ("172.17.0.1", 2375)]
        seen["connected"] = [
            [place, family] for place in places for family in (socket.AF_INET, socket.AF_INET6)
            if refusal(connect, family, place) is None
        ]
        seen["sent"] = refusal(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"?", ("1.1.1.1", 53)))
        seen["resolved"] = refusal(socket.getaddrinfo, "example.org", 80)
        seen["abstract"] = refusal(connect, socket.AF_UNIX, "\\0{name}")
    """)
    assert seen["interfaces"] == ["lo"]
    assert seen["routes"] == []
    assert seen["connected"] == []
    assert seen["sent"] is not None
    assert seen["resolved"] is not None
    assert seen["abstract"] == "ECONNREFUSED"
    assert not reached.is_set()


# -- privileges -------------------------------------------------------------------------------------------------------


def test_the_judge_has_the_capabilities_that_are_named_and_a_runner_has_none(warm: Warm):
    look = f"{PROCESSES}\nseen['all'] = [[command[-3:], facts] for _, command, facts in processes]"
    granted = sum(1 << CAPABILITY_BITS[name] for name in CAPABILITIES)
    trusted, runners = [], []
    for command, facts in run_inside(warm.evaluator, look)["all"]:
        held = {name: int(facts[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
        assert int(facts["CapBnd"][0], 16) == granted, command
        (trusted if facts["Uid"] == ["0"] * 4 else runners).append(held)
    assert len(trusted) >= 3, "its init, the judge, the fork server"
    assert len(runners) == 3, "of reference, submission and nothing"
    assert all(held["CapPrm"] == held["CapEff"] == granted for held in trusted)
    assert all(held["CapInh"] == held["CapAmb"] == 0 for held in trusted)
    assert all(not any(held.values()) for held in runners)


def test_each_runner_has_a_user_of_its_own_and_no_group_besides(warm: Warm):
    look = f"{PROCESSES}\nseen['all'] = [[facts['Uid'], facts['Gid'], facts['Groups']] for _, _, facts in processes]"
    runners = [ids for ids in run_inside(warm.evaluator, look)["all"] if ids[0][0] != "0"]
    assert len({uids[0] for uids, _, _ in runners}) == len(runners) == 3
    for uids, gids, groups in runners:
        assert len(set(uids)) == len(set(gids)) == 1
        assert "0" not in gids
        assert groups == []


def test_no_process_can_gain_privileges_and_each_has_its_system_calls_filtered(warm: Warm):
    look = f"{PROCESSES}\nseen['all'] = [[command[-3:], facts] for _, command, facts in processes]"
    for command, facts in run_inside(warm.evaluator, look)["all"]:
        assert facts["NoNewPrivs"] == ["1"], command
        assert facts["Seccomp"] == ["2"], command
        if "Seccomp_filters" in facts:  # Linux 5.9
            assert int(facts["Seccomp_filters"][0]) == (1 if facts["Uid"][0] == "0" else 2), command


def test_what_a_runner_must_not_ask_of_the_kernel_is_refused(warm: Warm):
    numbers = {machine: table | seccomp._COMMON for machine, table in seccomp._DENIED.items()}
    seen = run_inside(
        warm.evaluator,
        f"""
        numbers = json.loads('{json.dumps(numbers)}')[os.uname().machine]
        # All-zero arguments: most of these would succeed or fail otherwise, were they let through.
        seen["calls"] = {{name: refusal(call, number, 0, 0, 0, 0, 0, 0) for name, number in numbers.items()}}
        families = ("AF_INET", "AF_INET6", "AF_PACKET", "AF_VSOCK")
        seen["sockets"] = {{name: refusal(socket.socket, getattr(socket, name)) for name in families}}
        seen["local"] = refusal(lambda: socket.socket(socket.AF_UNIX).close())
        """,
    )
    assert {
        "ptrace", "process_vm_readv", "process_vm_writev", "keyctl", "bpf", "userfaultfd", "perf_event_open",
        "io_uring_setup", "unshare", "setns", "mount", "pidfd_getfd", "shmget", "semget", "msgget",
    } <= set(seen["calls"])  # fmt: skip
    assert set(seen["calls"].values()) == {"EPERM"}
    assert set(seen["sockets"].values()) == {"EPERM"}
    assert seen["local"] is None


def test_neither_can_mount_make_devices_change_root_or_make_namespaces(run):
    seen = run("""
        libc = ctypes.CDLL(None, use_errno=True)

        def check(result):
            if result != 0:
                raise OSError(ctypes.get_errno(), "")

        home = os.environ.get("TMPDIR", "/tmp")
        seen["mount"] = refusal(lambda: check(libc.mount(b"none", home.encode(), b"tmpfs", 0, None)))
        seen["bind"] = refusal(lambda: check(libc.mount(b"/proc", home.encode(), None, 4096, None)))
        seen["remount"] = refusal(lambda: check(libc.mount(None, b"/", None, 32, None)))
        seen["umount"] = refusal(lambda: check(libc.umount2(b"/tmp", 2)))
        seen["disk"] = refusal(os.mknod, f"{home}/disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
        seen["memory"] = refusal(os.mknod, f"{home}/memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
        seen["chroot"] = refusal(os.chroot, home)
        for name, flag in {"user": 0x10000000, "mount": 0x20000, "network": 0x40000000, "pid": 0x20000000}.items():
            seen[f"{name} namespace"] = refusal(lambda: check(libc.unshare(flag)))
        for name in ("mnt", "pid", "net"):
            seen[f"enter {name}"] = refusal(lambda: check(libc.setns(os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0)))
        seen["hostname"] = refusal(socket.sethostname, "elsewhere")
        seen["clock"] = refusal(time.clock_settime, time.CLOCK_REALTIME, 0.0)
        seen["priority"] = refusal(os.nice, -5)
        seen["real time"] = refusal(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
        seen["give away"] = refusal(lambda: os.chown(home, 12345, 12345))
    """)
    assert {name: error for name, error in seen.items() if error not in ("EPERM", "EACCES")} == {}


def test_only_devices_without_power_are_there(run):
    seen = run("""
        for folder, _, names in os.walk("/dev"):
            for path in (os.path.join(folder, name) for name in names):
                mode = os.lstat(path).st_mode
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    seen[path] = stat.S_ISBLK(mode)
    """)
    harmless = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx", "console")}
    assert {path for path in seen if not path.startswith("/dev/pts/")} <= harmless
    assert not any(seen.values())


# -- files ------------------------------------------------------------------------------------------------------------

WRITABLE = """
def make_a_file_in(folder):
    probe = os.path.join(folder, "kbenv-probe")
    os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(probe)


def open_to_write(path):
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, "no file")
    os.close(os.open(path, os.O_WRONLY))


found = {"/run/kbenv/scratch": []}  # which cannot be listed
for top in ("/", os.getcwd()):
    for folder, inner, names in os.walk(top):
        if folder == "/proc":
            inner[:] = [name for name in inner if not name.isdigit()]
        found[folder] = names
folders = [folder for folder in found if refusal(make_a_file_in, folder) is None]
paths = [os.path.join(folder, name) for folder, names in found.items() for name in names]
files = [path for path in paths if refusal(open_to_write, path) is None]
with open("/proc/mounts") as table:
    kinds = {line.split()[1]: line.split()[2] for line in table}
"""


def test_a_submission_can_write_to_its_scratch_and_to_shared_folders_alone(warm: Warm):
    seen = run_inside(
        warm.evaluator,
        f"{WRITABLE}\nseen.update(folders=folders, files=files, home=os.environ['HOME'])",
    )
    shared = {"/tmp", "/dev/shm", "/dev/mqueue", SCRATCH}
    assert seen["home"] in seen["folders"]
    assert {path for path in seen["folders"] if not path.startswith(seen["home"])} == shared
    own = (seen["home"], "/proc/pressure")  # what is written there is a watch of the writer's own
    assert [path for path in seen["files"] if not path.startswith(own)] == []


def test_root_can_write_to_memory_alone(warm: Warm):
    seen = warm.run_as_judge(f"""{WRITABLE}
def kind(path):
    while path not in kinds:
        path = os.path.dirname(path)
    return kinds[path]


seen["found"] = sorted(folders)[:50]
seen["kinds"] = sorted({{kind(path) for path in folders}})
seen["files"] = [path for path in files if kind(path) not in ("tmpfs", "proc")]
""")
    assert {"/tmp", "/run/kbenv"} <= set(seen["found"])
    assert {"/", "/etc", "/usr", "/root", "/var/tmp"}.isdisjoint(seen["found"])
    assert set(seen["kinds"]) <= {"tmpfs", "mqueue"}
    assert seen["files"] == []


def test_what_the_kernel_would_be_set_by_is_read_only(run):
    seen = run("""
        for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hostname",
            "/proc/sys/fs/mqueue/queues_max", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
            "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max",
        ):
            if os.path.exists(path):
                seen[path] = refusal(os.open, path, os.O_WRONLY)
        for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg", "/dev/mem", "/dev/kmsg"):
            try:
                with open(path, "rb", buffering=0) as file:
                    seen[path] = "empty" if file.read(1) == b"" else "read"
            except OSError as e:
                seen[path] = errno.errorcode[e.errno]
        seen["firmware"] = os.listdir("/sys/firmware") or "empty"
    """)
    assert "/proc/sys/kernel/core_pattern" in seen
    assert set(seen.values()) <= {"EROFS", "EACCES", "EPERM", "ENOENT", "empty"}, seen


def test_scratch_and_shared_folders_are_bounded_and_hold_no_setuid_program_and_no_device(warm: Warm):
    limits = warm.evaluator.protocol.limits
    seen = warm.run_as_judge("""
        with open("/proc/mounts") as table:
            for line in table:
                _, path, kind, options = line.split()[:4]
                if kind == "tmpfs" and "rw" in options.split(","):
                    facts = os.statvfs(path)
                    seen[path] = [facts.f_blocks * facts.f_frsize, facts.f_files, options.split(",")]
    """)
    for path, size in {
        "/tmp": 1 << 30, "/dev/shm": 1 << 30, SCRATCH: limits.scratch_bytes, f"{SCRATCH}/trusted": limits.scratch_bytes,
    }.items():  # fmt: skip
        nbytes, inodes, options = seen[path]
        assert nbytes == size
        assert inodes == 65536
        assert {"nosuid", "nodev"} <= set(options)
    for path in ("/dev/shm", "/run/kbenv"):
        assert "noexec" in seen[path][2]


def test_a_full_tmpfs_is_full_and_its_files_are_counted(warm: Warm):
    limit = warm.evaluator.protocol.limits.scratch_bytes
    seen = run_inside(
        warm.evaluator,
        """
        written = 0
        block = bytes(1 << 20)
        try:
            with open("filler", "wb", buffering=0) as file:
                while True:
                    written += file.write(block)
        except OSError as e:
            seen["full"] = errno.errorcode[e.errno]
        seen["written"] = written
        made = 0
        try:
            while True:
                os.close(os.open(f"/dev/shm/{made}", os.O_CREAT | os.O_WRONLY))
                made += 1
        except OSError as e:
            seen["too many"] = errno.errorcode[e.errno]
        seen["made"] = made
        """,
    )
    assert seen["full"] == seen["too many"] == "ENOSPC"
    assert 0.9 * limit < seen["written"] <= limit
    assert 60_000 < seen["made"] <= 65536


def test_no_folder_of_the_host_is_there_but_what_the_engine_itself_needs(run):
    seen = run("""
        with open("/proc/self/mountinfo") as table:
            for line in table:
                before, after = line.split(" - ")
                seen[before.split()[4]] = [after.split()[0], before.split()[5].split(",")]
    """)
    kinds = {"overlay", "proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"}
    bound = {path: options for path, (kind, options) in seen.items() if kind not in kinds}
    own = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/usr/sbin/docker-init", "/sbin/docker-init"}
    assert set(bound) - own <= set(DOCKER.mounts)
    assert all("ro" in options for options in bound.values())


def test_no_socket_of_the_engine_nor_any_other_is_there(run):
    seen = run("""
        sockets = []
        for folder, inner, names in os.walk("/"):
            inner[:] = [name for name in inner if os.path.join(folder, name) not in ("/proc", "/sys")]
            for path in (os.path.join(folder, name) for name in names):
                try:
                    if stat.S_ISSOCK(os.lstat(path).st_mode):
                        sockets.append(path)
                except OSError:
                    pass
        seen["sockets"] = sockets
        seen["engine"] = os.environ.get("DOCKER_HOST")
    """)
    assert seen == {"sockets": [], "engine": None}


# -- limits -----------------------------------------------------------------------------------------------------------


def test_processes_are_limited_for_the_container(warm: Warm):
    limit = 4 * warm.evaluator.protocol.limits.processes
    seen = warm.run_as_judge(f"""{CGROUP}
seen["limit"] = cgroup("pids", "pids.max")
children = []
try:
    while len(children) < 2 * {limit}:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except OSError as e:
    seen["refused"] = errno.errorcode[e.errno]
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
seen["children"] = len(children)
""")
    assert seen["limit"] == [str(limit)]
    assert seen["refused"] == "EAGAIN"
    assert seen["children"] < limit


def test_processes_and_threads_are_limited_for_a_submission(warm: Warm):
    limit = warm.evaluator.protocol.limits.processes + CPU_THREADS
    seen = run_inside(
        warm.evaluator,
        """
        import threading

        children = []
        try:
            while len(children) < 1000:
                child = os.fork()
                if child == 0:
                    signal.pause()
                children.append(child)
        except OSError as e:
            seen["process"] = errno.errorcode[e.errno]
        try:
            threading.Thread(target=print).start()
        except RuntimeError:
            seen["thread"] = "refused"
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        seen["children"] = len(children)
        """,
    )
    assert seen["process"] == "EAGAIN"
    assert seen["thread"] == "refused"
    assert limit / 2 < seen["children"] < limit


def test_memory_is_limited_and_no_swap_adds_to_it(warm: Warm):
    container = warm.container
    seen = warm.run_as_judge(f"""{CGROUP}
seen["memory"] = cgroup("memory", "memory.max", "memory.limit_in_bytes")
seen["swap"] = cgroup("memory", "memory.swap.max")
seen["both"] = cgroup("memory", "memory.memsw.limit_in_bytes")
""")
    limit = int(seen["memory"][0])
    assert 0 < limit <= warm.evaluator.protocol.limits.host_memory_bytes + (4 << 30)
    if seen["swap"] or seen["both"]:  # else the machine has no swap to give
        assert seen["swap"] == ["0"] or seen["both"] == [str(limit)]
    overrun = f"blocks = [b'x' * (1 << 26) for _ in range({limit >> 26} + 1)]"
    assert container.exec_run(["python3", "-I", "-c", overrun], user="0").exit_code == 128 + signal.SIGKILL
    assert run_inside(warm.evaluator, "seen['name'] = os.uname().nodename")["name"] == container.id[:12]


def test_the_limits_of_a_submissions_process_hold_and_cannot_be_raised(warm: Warm):
    limits = warm.evaluator.protocol.limits
    seen = run_inside(
        warm.evaluator,
        """
        names = ("NPROC", "NOFILE", "FSIZE", "CORE", "AS")
        seen["limits"] = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names}
        seen["raised"] = [
            refusal(resource.setrlimit, getattr(resource, f"RLIMIT_{name}"), (hard + 1, hard + 1))
            for name, (_, hard) in seen["limits"].items()
        ]
        opened = []
        try:
            while True:
                opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as e:
            seen["files"] = [errno.errorcode[e.errno], len(opened)]
        for descriptor in opened:
            os.close(descriptor)
        with open("large", "wb") as file:
            size = seen["limits"]["FSIZE"][1]
            seen["longest"] = refusal(os.ftruncate, file.fileno(), size)
            seen["longer"] = refusal(os.ftruncate, file.fileno(), size + 1)
        child = os.fork()
        if child == 0:
            ctypes.string_at(0)
        _, status = os.waitpid(child, 0)
        seen["core"] = [os.WTERMSIG(status), os.WCOREDUMP(status)]
        try:
            bytearray(seen["limits"]["AS"][1])
        except MemoryError:
            seen["memory"] = "MemoryError"
        """,
    )
    assert {name: seen["limits"][name] for name in ("NPROC", "NOFILE", "FSIZE", "CORE")} == {
        "NPROC": [limits.processes + CPU_THREADS] * 2, "NOFILE": [limits.open_files] * 2,
        "FSIZE": [limits.file_bytes] * 2, "CORE": [0, 0],
    }  # fmt: skip
    assert set(seen["raised"]) == {"EPERM"}
    assert seen["files"][0] == "EMFILE"
    assert seen["files"][1] < limits.open_files
    assert (seen["longest"], seen["longer"]) == (None, "EFBIG")
    assert seen["core"] == [signal.SIGSEGV, False]
    assert seen["memory"] == "MemoryError"


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_the_containers_namespaces_are_its_own(run):
    marker = Path("/dev/shm") / f"kbenv-{uuid.uuid4().hex}"
    marker.write_text("of the host")
    try:
        seen = run(f"""
            for name in ("ipc", "mnt", "net", "pid", "uts"):
                seen[name] = os.readlink(f"/proc/self/ns/{{name}}")
            seen["shared memory"] = os.path.exists("{marker}")
        """)
    finally:
        marker.unlink()
    assert not seen.pop("shared memory")
    for name, namespace in seen.items():
        assert namespace != os.readlink(f"/proc/self/ns/{name}")


def test_init_is_the_first_process_and_reaps_what_loses_its_parent(warm: Warm):
    seen = run_inside(
        warm.evaluator,
        """
        with open("/proc/1/cmdline") as file:
            seen["first"] = file.read().split("\\0")[0]
        (told, tell), (waiting, wake) = os.pipe(), os.pipe()
        if os.fork() == 0:
            orphan = os.fork()
            if orphan:
                os.write(tell, str(orphan).encode())
            else:
                os.read(waiting, 1)
            os._exit(0)
        os.wait()
        orphan = os.read(told, 20).decode()
        with open(f"/proc/{orphan}/stat") as file:
            seen["parent"] = file.read().rpartition(")")[2].split()[1]
        os.write(wake, b"!")
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{orphan}") and time.monotonic() < deadline:
            time.sleep(0.001)
        seen["reaped"] = not os.path.exists(f"/proc/{orphan}")
        """,
    )
    assert os.path.basename(seen["first"]) in ("docker-init", "tini", "catatonit")
    assert seen["parent"] == "1"
    assert seen["reaped"]


def test_the_environment_holds_nothing_of_the_host(warm: Warm):
    assert SECRET in os.environ
    look = """
        with open("/proc/1/environ") as file:
            seen["init"] = file.read().split("\\0")
        with open("/proc/1/task/1/children") as file:
            judge = file.read().split()[0]
        with open(f"/proc/{judge}/environ") as file:
            seen["judge"] = file.read().split("\\0")
    """
    environments = warm.run_as_judge(look)
    environments["submission"] = run_inside(
        warm.evaluator, "seen['all'] = [f'{name}={value}' for name, value in os.environ.items()]"
    )["all"]
    theirs = {f"{name}={value}" for name, value in os.environ.items()}
    harmless = {"HOME", "LANG", "PATH", *judge_environment("0")}
    for who, environment in environments.items():
        assert len(environment) > 5, who
        assert not any(SECRET in entry for entry in environment), who
        assert {entry.partition("=")[0] for entry in theirs.intersection(environment)} <= harmless, who


def test_what_the_judge_logs_is_kept_by_the_engine_not_at_all_and_here_up_to_a_bound(warm: Warm):
    from docker.errors import APIError

    carrier: Any = warm.evaluator._sandbox._carrier
    before = warm.container.id
    warm.run_as_judge("""
        with open("/proc/1/fd/2", "w") as log:
            for _ in range(200):
                log.write("noise " * 10_000)
            log.write("the end")
    """)
    until(lambda: carrier.last_words().endswith("the end"), "the log's end arrives")
    assert sum(map(len, carrier._log)) <= 128 << 10
    with pytest.raises(APIError, match="does not support reading"):
        warm.container.logs()
    assert warm.container.id == before


# -- what settings add ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled(engine: DockerClient) -> Iterator[tuple[Warm, Path]]:
    """One processor, and a folder of this machine."""
    if not facts_of(engine).is_local:
        pytest.skip("the engine is on another machine, which has other folders")
    with tempfile.TemporaryDirectory(prefix="kbenv-shown-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "weights").write_text("shown")
        for path, mode in ((folder, 0o777), (folder / "weights", 0o666)):
            path.chmod(mode)
        settings = replace(DOCKER, cpus=1, mounts=(*DOCKER.mounts, name))
        with Evaluator(
            protocol=make_protocol("verified tight"), device="cpu", sandbox="docker", docker=settings
        ) as evaluator:
            yield Warm(evaluator, engine), folder


def test_a_mounted_folder_is_seen_and_cannot_be_written_to(settled: tuple[Warm, Path]):
    warm, folder = settled
    look = f"""
        with open("{folder}/weights") as file:
            seen["read"] = file.read()
        seen["changed"] = refusal(os.open, "{folder}/weights", os.O_WRONLY)
        seen["made"] = refusal(os.open, "{folder}/planted", os.O_WRONLY | os.O_CREAT)
        seen["removed"] = refusal(os.unlink, "{folder}/weights")
    """
    for seen in (run_inside(warm.evaluator, look), warm.run_as_judge(look)):
        assert seen == {"read": "shown", "changed": "EROFS", "made": "EROFS", "removed": "EROFS"}
    assert os.listdir(folder) == ["weights"]


def test_processors_are_limited_when_asked(settled: tuple[Warm, Path]):
    warm, _ = settled
    seen = warm.run_as_judge(f"""{CGROUP}
quota = cgroup("cpu", "cpu.max") or cgroup("cpu", "cpu.cfs_quota_us") + cgroup("cpu", "cpu.cfs_period_us")
seen["quota"] = int(quota[0]) / int(quota[1])
started = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        while time.monotonic() < started + 1:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
seen["used"] = sum(os.times()[2:4]) / (time.monotonic() - started)
""")
    assert seen["quota"] == 1
    assert seen["used"] < 1.25
    if (os.cpu_count() or 1) == 1:
        pytest.skip("with one processor more could not be used anyway")


def test_a_submission_cannot_see_how_the_verdict_is_carried(warm: Warm):
    """Frames to the host go over the container's standard output, which no runner has."""
    verdict = warm.evaluator.evaluate(RELU, make_submission("print(json.dumps({'result': {'status': 'PASSED'}}))"))
    assert verdict.status is Status.WRONG_VALUE
