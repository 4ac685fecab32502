"""A deny list of system calls for runners, as a classic BPF program installed by prctl.

It removes ways to reach other processes and the kernel's rarely audited corners. It is no allow list: compilers, CUDA,
Triton and PyTorch must run under it. Two machines are known; elsewhere `install` says so by returning False.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARG0 = 0, 4, 16
_CLONE_NEWUSER = 0x10000000
_AF_INET, _AF_INET6, _AF_PACKET, _AF_VSOCK = 2, 10, 17, 40
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

# Names and numbers from the kernel's system call tables; those from io_uring_setup on are the same on both machines.
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
}  # fmt: skip
_DENIED = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "add_key": 248,
        "request_key": 249, "keyctl": 250, "bpf": 321, "userfaultfd": 323, "perf_event_open": 298, "mount": 165,
        "umount2": 166, "pivot_root": 155, "setns": 308, "unshare": 272, "open_by_handle_at": 304,
        "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320,
        "reboot": 169, "swapon": 167, "acct": 163, "quotactl": 179, "personality": 135, "shmget": 29, "semget": 64,
        "msgget": 68,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "add_key": 217,
        "request_key": 218, "keyctl": 219, "bpf": 280, "userfaultfd": 282, "perf_event_open": 241, "mount": 40,
        "umount2": 39, "pivot_root": 41, "setns": 268, "unshare": 97, "open_by_handle_at": 265,
        "init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104, "kexec_file_load": 294,
        "reboot": 142, "swapon": 224, "acct": 89, "quotactl": 60, "personality": 92, "shmget": 194, "semget": 190,
        "msgget": 186,
    },
}  # fmt: skip
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE3 = 435


def _program(machine: str, *, deny_network: bool) -> list[tuple[int, int, int, int]]:
    program = [(_LOAD, 0, 0, _OFFSET_ARCH), (_JUMP_EQ, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _OFFSET_NUMBER))
    if machine == "x86_64":  # the x32 ABI reaches the same calls under other numbers
        program += [(_JUMP_GE, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM)]
    for number in (_DENIED[machine] | _COMMON).values():
        program += [(_JUMP_EQ, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    # clone3's flags lie in memory, out of BPF's sight: without it the C library falls back to clone, whose flags do
    # not.
    program += [(_JUMP_EQ, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
    program += [(_JUMP_EQ, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, _OFFSET_ARG0)]
    program += [(_JUMP_SET, 0, 1, _CLONE_NEWUSER), (_RETURN, 0, 0, _EPERM), (_LOAD, 0, 0, _OFFSET_NUMBER)]
    families = [_AF_VSOCK, _AF_PACKET] + ([_AF_INET, _AF_INET6] if deny_network else [])
    program += [(_JUMP_EQ, 0, 1 + 2 * len(families), _SOCKET[machine]), (_LOAD, 0, 0, _OFFSET_ARG0)]
    for family in families:
        program += [(_JUMP_EQ, 0, 1, family), (_RETURN, 0, 0, _EPERM)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return program


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(*, deny_network: bool) -> bool:
    """Sets no_new_privs and installs the deny list for this process and its children.

    Args:
        deny_network: also deny sockets of the internet families, where no network namespace does it.

    Returns:
        False when the machine is unknown or the kernel refuses a filter (no_new_privs is set all the same).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    machine = platform.machine()
    if machine not in _DENIED:
        return False
    program = _program(machine, deny_network=deny_network)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", op, jt, jf, k) for op, jt, jf, k in program))
    prog = _Filter(len(program), ctypes.addressof(code))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(prog), 0, 0) == 0)


def supported() -> bool:
    """Whether the kernel has seccomp filters and this machine's system calls are known (installs nothing)."""
    return platform.machine() in _DENIED and os.path.exists("/proc/sys/kernel/seccomp")
