"""The deny list denies what it names, and lets compilers, threads and children live."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kbenv.sandbox import seccomp

MACHINE = platform.machine()
SIGCHLD = 17
CLONE_NEWUSER = 0x10000000

pytestmark = pytest.mark.skipif(not seccomp.supported(), reason="no seccomp filters on this machine")


def call(number: int, *arguments: int) -> int:
    """The error number of a system call with these arguments; 0 when it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    return ctypes.get_errno() if result == -1 else 0


def in_child(inside: Callable[[], Any], *, deny_network: bool = False, filtered: bool = True) -> Any:
    """What `inside` returns (JSON) in a forked child, behind the filter unless told otherwise."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer: Any = "failed"
        try:
            installed = seccomp.install(deny_network=deny_network) if filtered else True
            answer = inside() if installed else "not installed"
        finally:
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"
    return json.loads(answer)


def test_every_call_on_the_list_is_refused():
    # All-zero arguments: were a call let through, it would fail otherwise or do nothing.
    denied = {name: n for name, n in (seccomp._DENIED[MACHINE] | seccomp._COMMON).items()}
    seen = in_child(lambda: {name: call(number, 0, 0, 0, 0, 0) for name, number in denied.items()})
    assert {name for name, error in seen.items() if error != errno.EPERM} == set()


def test_the_list_makes_the_difference():
    """`personality` asks for the current one with this argument and is allowed to anybody otherwise."""
    number = seccomp._DENIED[MACHINE]["personality"]
    assert in_child(lambda: call(number, 0xFFFFFFFF), filtered=False) == 0
    assert in_child(lambda: call(number, 0xFFFFFFFF)) == errno.EPERM


def test_a_new_user_namespace_is_refused_and_a_new_process_is_not():
    def inside() -> list[int]:
        refused = call(seccomp._CLONE[MACHINE], CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        return [refused, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]

    assert in_child(inside) == [errno.EPERM, 7]


def test_clone3_is_not_there_so_that_the_c_library_falls_back():
    assert in_child(lambda: call(seccomp._CLONE3, 0, 0)) == errno.ENOSYS


@pytest.mark.skipif(MACHINE != "x86_64", reason="the x32 ABI exists on x86_64 alone")
def test_the_x32_numbers_are_refused():
    assert in_child(lambda: [call(0x40000000 + 39), call(0x40000000 + 520)]) == [errno.EPERM, errno.EPERM]


def open_socket(family: int) -> int:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as e:
        return e.errno or -1
    return 0


@pytest.mark.parametrize("deny_network", [False, True])
def test_internet_sockets_are_denied_only_where_asked_and_local_ones_never(deny_network):
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    before = [open_socket(family) for family in families]
    seen = in_child(lambda: [open_socket(family) for family in families], deny_network=deny_network)
    assert seen == ([errno.EPERM, errno.EPERM, 0] if deny_network else before)


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET"])
def test_sockets_to_the_host_and_the_wire_are_always_denied(family):
    assert in_child(lambda: open_socket(getattr(socket, family))) == errno.EPERM


def test_the_filter_and_no_new_privileges_show_in_proc():
    def inside() -> dict[str, str]:
        with open("/proc/self/status") as file:
            facts = dict(line.split(":", 1) for line in file)
        return {name: facts[name].strip() for name in ("NoNewPrivs", "Seccomp")}

    assert in_child(inside) == {"NoNewPrivs": "1", "Seccomp": "2"}


def test_threads_and_programs_run_and_inherit_the_filter():
    number = seccomp._DENIED[MACHINE]["personality"]
    program = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
        f"print(libc.syscall({number}, 0xFFFFFFFF), ctypes.get_errno())"
    )

    def inside() -> list[Any]:
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(call(number, 0xFFFFFFFF)))
        thread.start()
        thread.join()
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        return [seen, ran.stdout.split()]

    assert in_child(inside) == [[errno.EPERM], ["-1", str(errno.EPERM)]]


def test_an_unknown_machine_gets_no_filter_and_is_told_so():
    def inside() -> list[Any]:
        platform.machine = lambda: "riscv64"  # in the child alone
        installed = seccomp.install(deny_network=True)
        with open("/proc/self/status") as file:
            no_new_privileges = [line.split()[1] for line in file if line.startswith("NoNewPrivs:")]
        return [installed, seccomp.supported(), no_new_privileges]

    assert in_child(inside, filtered=False) == [False, False, ["1"]]


def test_both_machines_deny_the_same_calls():
    assert seccomp._DENIED["x86_64"].keys() == seccomp._DENIED["aarch64"].keys()
    for machine in seccomp._DENIED:
        program = seccomp._program(machine, deny_network=True)
        assert len(program) < 4096  # the kernel's limit
        for at, (op, if_true, if_false, _) in enumerate(program):
            if op in (seccomp._JUMP_EQ, seccomp._JUMP_GE, seccomp._JUMP_SET):
                assert at + 1 + max(if_true, if_false) < len(program)
