"""What this machine has of what kbenv uses, what is missing, and what to do about it.

Whatever could disturb the calling process (importing torch, leaving a namespace, touching seccomp) happens in a child
process. Nothing is changed on the machine. Not covered: whether a kernel really runs; `kbenv eval` shows that.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kbenv.backends import BACKENDS, Backend, Requirement
from kbenv.engine_finding import Engine, check_engine, probe_engine, probe_toolkit, refuse_docker
from kbenv.errors import ProblemNotFoundError
from kbenv.finding import Finding, Need, State, ask_child, read_tool
from kbenv.sandbox.runner.machine_code import TOOL, find_tool
from kbenv.sandbox.runner.tool import NCU, SANITIZER, find_program

_MIN_PYTHON = (3, 11)
_MIN_TORCH = (2, 9)
_MIN_FREE_BYTES = 2 << 30


@dataclass(frozen=True)
class TorchFacts:
    """What torch says of itself in a child interpreter.

    Attributes:
        version: None when it could not be imported; then `error` says why.
        cuda: the CUDA version it was built for, None for a CPU build.
        gpus: one description for each CUDA device that it can use.
    """

    version: str | None
    cuda: str | None
    gpus: tuple[str, ...]
    error: str | None


@dataclass(frozen=True)
class KernelFacts:
    """What the operating system's kernel allows this user; each is None when allowed, else the refusal in words.

    Attributes:
        user_namespace: a new user namespace with the others and private mounts inside it.
        namespaces: new mount, ipc, uts, network and pid namespaces without a user namespace, and a tmpfs mounted there.
        seccomp: installing a seccomp filter.
    """

    user_namespace: str | None
    namespaces: str | None
    seccomp: str | None


def examine() -> tuple[Finding, ...]:
    """Every finding, from what judging needs most to what is only convenient. Takes some seconds: torch is imported."""
    torch = probe_torch()
    kernel = probe_kernel()
    driver = probe_driver()
    has_gpu = driver is not None or bool(torch.gpus)
    engine = probe_engine()
    return (
        check_python(),
        check_torch(torch),
        *check_gpu(torch, driver),
        check_nvcc(has_gpu),
        *check_gpu_tools(),
        check_compiler("C++ compiler", "CXX", ("c++", "g++", "clang++")),
        check_compiler("C compiler", "CC", ("cc", "gcc", "clang")),
        check_python_headers(),
        check_ninja(),
        check_package("cuda-bindings", "pip install 'kbenv[cuda]'", "gpu", has_gpu),
        check_package("triton", "pip install triton, to judge Triton kernels", None, has_gpu),
        check_package("litellm", "pip install 'kbenv[llm]', to ask a language model", None, has_gpu),
        check_package("docker", "pip install 'kbenv[docker]', for the Docker sandbox", None, has_gpu),
        *check_engine(engine, has_gpu=has_gpu, toolkit=probe_toolkit()),
        check_user(),
        check_user_namespaces(kernel),
        check_namespaces(kernel),
        check_bubblewrap(),
        check_seccomp(kernel),
        check_memfd(),
        check_shared_memory(),
        check_temporary_folder(),
        check_sandbox(kernel, engine, on_gpu=bool(torch.gpus)),
        check_kernelbench(),
        *check_problem_sets(),
        *(check_backend(backend, torch) for backend in BACKENDS),
    )


def can_judge_on_cpu(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing is missing that judging on the CPU needs."""
    return not any(finding.state == "missing" and finding.needed_for == "cpu" for finding in findings)


# -- probes in child processes ----------------------------------------------------------------------------------------

_TORCH_PROBE = """
import json
import torch
gpus = []
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        gpus.append(f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, compute capability {gpu.major}.{gpu.minor}")
print(json.dumps({"version": str(torch.__version__), "cuda": torch.version.cuda, "gpus": gpus}))
"""

# Each attempt in a fork of its own: what a process has left it cannot enter again.
_KERNEL_PROBE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NS, UTS, IPC, USER, PID, NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
REC_PRIVATE, NOSUID_NODEV, EFAULT = 16384 | 1 << 18, 2 | 4, 14

def do(what, result):
    if result != 0:
        raise OSError(ctypes.get_errno(), what + ": " + os.strerror(ctypes.get_errno()))

def namespaces():
    do("unshare", libc.unshare(NS | UTS | IPC | PID | NET))
    do("private mounts", libc.mount(b"none", b"/", None, ctypes.c_ulong(REC_PRIVATE), None))
    do("mount tmpfs", libc.mount(b"tmpfs", sys.argv[1].encode(), b"tmpfs", ctypes.c_ulong(NOSUID_NODEV), b"size=64k"))

def user_namespace():
    do("unshare", libc.unshare(USER))
    namespaces()

def seccomp():
    do("no_new_privs", libc.prctl(38, 1, 0, 0, 0))
    libc.prctl(22, 2, None, 0, 0)  # a filter at address 0: refused as a bad address where filters are supported
    if ctypes.get_errno() != EFAULT:
        raise OSError(ctypes.get_errno(), "prctl: " + os.strerror(ctypes.get_errno()))

def attempt(function):
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except OSError as error:
            os.write(writable, str(error.strerror).encode())
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(pid, 0)
    return os.read(readable, 4096).decode() or None

print(json.dumps({function.__name__: attempt(function) for function in (user_namespace, namespaces, seccomp)}))
"""


def probe_torch() -> TorchFacts:
    """Imports torch as a sandbox does: in an isolated interpreter (`-I`), which ignores user and working folders."""
    answer = ask_child(_TORCH_PROBE)
    if isinstance(answer, str):
        return TorchFacts(version=None, cuda=None, gpus=(), error=answer)
    return TorchFacts(version=answer["version"], cuda=answer["cuda"], gpus=tuple(answer["gpus"]), error=None)


def probe_kernel() -> KernelFacts:
    """Tries namespaces, mounts and seccomp in children that end at once."""
    if sys.platform != "linux":
        refusal = f"{platform.system()} has none"
        return KernelFacts(user_namespace=refusal, namespaces=refusal, seccomp=refusal)
    with tempfile.TemporaryDirectory() as folder:
        answer = ask_child(_KERNEL_PROBE, folder)
    if isinstance(answer, str):
        return KernelFacts(user_namespace=answer, namespaces=answer, seccomp=answer)
    return KernelFacts(**answer)


def probe_driver() -> str | None:
    """The NVIDIA driver's version, None when there is no driver or no GPU."""
    output = read_tool(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    if output is not None and (first := output.strip().splitlines()[:1]):
        return first[0].strip()
    try:
        match = re.search(r"Module\s+([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return match[1] if match else "version unknown"


# -- findings ---------------------------------------------------------------------------------------------------------


def check_python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= _MIN_PYTHON:
        return Finding("Python", "ok", found, needed_for="cpu")
    return Finding("Python", "missing", found, f"install Python {_join(_MIN_PYTHON)} or later", "cpu")


def check_torch(torch: TorchFacts) -> Finding:
    install = f"pip install 'torch>={_join(_MIN_TORCH)}' into this interpreter's own site-packages"
    if torch.version is None:
        return Finding("torch", "missing", torch.error or "not installed", install, "cpu")
    build = f"built for CUDA {torch.cuda}" if torch.cuda else "without CUDA"
    found = f"{torch.version}, {build}"
    if tuple(int(part) for part in re.findall(r"\d+", torch.version)[:2]) < _MIN_TORCH:
        return Finding("torch", "missing", found, install, "cpu")
    return Finding("torch", "ok", found, needed_for="cpu")


def check_gpu(torch: TorchFacts, driver: str | None) -> tuple[Finding, Finding]:
    """The driver, and the GPUs that torch can use with it."""
    if driver is None and not torch.gpus:
        return (
            Finding("NVIDIA driver", "optional", "none", "kbenv judges on the CPU; for a GPU install NVIDIA's driver"),
            Finding("GPU", "optional", "none"),
        )
    drivers = Finding("NVIDIA driver", "ok", driver or "version unknown", needed_for="gpu")
    if torch.gpus:
        return drivers, Finding("GPU", "ok", "; ".join(torch.gpus), needed_for="gpu")
    if torch.cuda is None:
        found, advice = "torch cannot use it", "install a CUDA build of torch (https://pytorch.org/get-started/locally)"
    else:
        found = f"torch, built for CUDA {torch.cuda}, finds none"
        advice = "check CUDA_VISIBLE_DEVICES, the permissions of /dev/nvidia*, and that the driver is new enough"
    return drivers, Finding("GPU", "missing", found, advice, "gpu")


def check_nvcc(has_gpu: bool) -> Finding:
    home = os.environ.get("CUDA_HOME")
    path = shutil.which("nvcc") or (shutil.which("nvcc", path=f"{home}/bin") if home else None)
    path = path or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if path is None:
        advice = "install the CUDA toolkit that fits torch's CUDA version, to judge CUDA C++; Triton goes without"
        return Finding("nvcc", "missing" if has_gpu else "optional", "none", advice, "gpu" if has_gpu else None)
    match = re.search(r"release [\d.]+, V([\d.]+)", read_tool([path, "--version"]) or "")
    return Finding("nvcc", "ok", f"{match[1] if match else 'version unknown'} at {path}")


def check_gpu_tools() -> tuple[Finding, ...]:
    """What `--diagnose` needs; no verdict does."""
    advice = "comes with the CUDA toolkit; for {}"
    uses = {
        TOOL: ("machine code in a profile (Triton brings it along, too)", find_tool()),
        NCU: ("counters (--diagnose counters)", find_program(NCU)),
        SANITIZER: ("where a bad access is (--diagnose access)", find_program(SANITIZER)),
    }
    found = []
    for name, (use, path) in uses.items():
        if path is None:
            found.append(Finding(name, "optional", "none", advice.format(use)))
        elif name == NCU and _counters_are_restricted():
            refused = f"at {path}; the driver gives counters to root alone, and a submission is not root"
            found.append(Finding(name, "optional", refused, "load it with NVreg_RestrictProfilingToAdminUsers=0"))
        else:
            found.append(Finding(name, "ok", f"at {path}"))
    return tuple(found)


def _counters_are_restricted() -> bool:
    try:
        text = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return False
    return re.search(r"^RmProfilingAdminOnly: *1", text, re.MULTILINE) is not None


def check_compiler(name: str, variable: str, candidates: tuple[str, ...]) -> Finding:
    """A compiler: the one that the environment variable names, else the first candidate on PATH."""
    chosen = os.environ.get(variable)
    for candidate in (chosen.split()[0],) if chosen and chosen.strip() else candidates:
        if path := shutil.which(candidate):
            version = (read_tool([path, "--version"]) or "").strip().splitlines()
            return Finding(name, "ok", f"{path}: {version[0]}" if version else path, needed_for="cpu")
    if chosen:
        return Finding(name, "missing", f"{variable}={chosen}: not on PATH", f"correct or unset {variable}", "cpu")
    advice = "install one (apt install g++, dnf install gcc-c++, xcode-select --install): kernels are compiled with it"
    return Finding(name, "missing", f"none of {', '.join(candidates)}", advice, "cpu")


def check_python_headers() -> Finding:
    folder = sysconfig.get_path("include")
    if os.path.exists(os.path.join(folder, "Python.h")):
        return Finding("Python headers", "ok", folder)
    advice = "install them (apt install python3-dev): extensions built by torch include Python.h"
    return Finding("Python headers", "optional", f"no Python.h in {folder}", advice)


def check_ninja() -> Finding:
    if path := shutil.which("ninja"):
        return Finding("ninja", "ok", f"{(read_tool([path, '--version']) or 'version unknown').strip()} at {path}")
    if version := _find_version("ninja"):
        return Finding("ninja", "ok", f"{version}, a Python package")
    return Finding("ninja", "optional", "none", "pip install ninja: torch builds C++ and CUDA extensions with it")


def check_package(package: str, advice: str, needed_for: Need | None, has_gpu: bool) -> Finding:
    """An optional Python package; one that is needed for the GPU is missing only where there is a GPU."""
    if version := _find_version(package):
        return Finding(package, "ok", version, needed_for=needed_for)
    state: State = "missing" if needed_for == "gpu" and has_gpu else "optional"
    return Finding(package, state, "not installed", advice, needed_for)


def check_user() -> Finding:
    uid = os.geteuid()
    if uid == 0:
        return Finding("user", "ok", "uid 0 (root): each submission gets a uid of its own")
    advice = "to give submissions another uid run kbenv as root, in a container for example"
    return Finding("user", "optional", f"uid {uid}, not root: submissions share it", advice)


def check_user_namespaces(kernel: KernelFacts) -> Finding:
    if kernel.user_namespace is None:
        return Finding("user namespaces", "ok", "allowed, mounts inside included")
    advice = (
        "bubblewrap needs them where kbenv is not root: see sysctl user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, or the container's seccomp "
        "profile"
    )
    return Finding("user namespaces", "optional", f"refused: {kernel.user_namespace}", advice)


def check_namespaces(kernel: KernelFacts) -> Finding:
    name = "namespaces as root"
    if os.geteuid() != 0:
        return Finding(name, "optional", "not root")
    if kernel.namespaces is None:
        return Finding(name, "ok", "mount, ipc, uts, network, pid; mounts allowed")
    advice = "grant CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or be content with another uid alone"
    return Finding(name, "optional", f"refused: {kernel.namespaces}", advice)


def check_bubblewrap() -> Finding:
    if path := shutil.which("bwrap"):
        return Finding("bubblewrap", "ok", f"{(read_tool([path, '--version']) or 'version unknown').strip()} at {path}")
    if os.geteuid() == 0:
        return Finding("bubblewrap", "optional", "none; root goes without")
    advice = "apt install bubblewrap: it confines submissions where kbenv is not root"
    return Finding("bubblewrap", "optional", "none", advice)


def check_seccomp(kernel: KernelFacts) -> Finding:
    from kbenv.sandbox import seccomp

    if kernel.seccomp is None and seccomp.supported():
        return Finding("seccomp", "ok", "filters allowed")
    if kernel.seccomp is None:
        found = f"filters allowed, but the system calls of {platform.machine()} are unknown to kbenv"
        return Finding("seccomp", "optional", found, "submissions run under no deny list of system calls here")
    advice = (
        "without it submissions run under no deny list of system calls; use a Linux kernel with CONFIG_SECCOMP_FILTER"
    )
    return Finding("seccomp", "optional", f"refused: {kernel.seccomp}", advice)


def check_memfd() -> Finding:
    """Anonymous shared memory, in which CPU tensors travel between judge and runners."""
    try:
        os.close(os.memfd_create("kbenv-doctor"))
    except (AttributeError, OSError) as e:
        advice = "judge on Linux 3.17 or later: tensors on the CPU travel through memfd_create"
        return Finding("memfd", "missing", f"refused: {e}", advice, "cpu")
    return Finding("memfd", "ok", "works", needed_for="cpu")


def check_shared_memory() -> Finding:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as e:
        return Finding("/dev/shm", "optional", f"{e.strerror}", "mount a tmpfs there: some submissions expect it")
    if free >= _MIN_FREE_BYTES:
        return Finding("/dev/shm", "ok", f"{free / 2**30:.1f} GiB free")
    advice = "enlarge it (docker run --shm-size 2g): some submissions expect room there"
    return Finding("/dev/shm", "optional", f"{free / 2**30:.2f} GiB free", advice)


def check_temporary_folder() -> Finding:
    """The folder for builds and scratch: writable, and with room for a build."""
    advice = "point TMPDIR at a folder that you can write, with at least 2 GiB free"
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"kbenv")
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as e:
        return Finding("temporary folder", "missing", str(e.strerror or e), advice, "cpu")
    found = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < _MIN_FREE_BYTES:
        return Finding("temporary folder", "missing", found, advice, "cpu")
    return Finding("temporary folder", "ok", found, needed_for="cpu")


def check_sandbox(kernel: KernelFacts, engine: Engine | str, *, on_gpu: bool) -> Finding:
    """Which sandbox `--sandbox auto` takes, why, and how far the process sandbox keeps a submission apart."""
    level = expected_isolation(is_root=os.geteuid() == 0, has_bubblewrap=bool(shutil.which("bwrap")), kernel=kernel)
    refusal = refuse_docker(engine, on_gpu=on_gpu)
    if refusal is None:
        return Finding("sandbox", "ok", f"docker: an engine answers and has our image; else process, {level!r}")
    found = f"process, isolation {level!r} (verdict.isolation); not docker: {refusal}"
    advice = {
        "full": None,
        "uid": "for namespaces as well grant CAP_SYS_ADMIN",
        "namespace": "for another uid as well run kbenv as root, in a container for example",
        "same-uid": "install bubblewrap, or run kbenv as root: now a submission can reach the judge's own files",
    }[level]
    return Finding("sandbox", "optional" if level == "same-uid" else "ok", found, advice)


def expected_isolation(*, is_root: bool, has_bubblewrap: bool, kernel: KernelFacts) -> str:
    """The level of `kbenv.verdict.Isolation` that the process sandbox would reach."""
    if is_root:
        return "full" if kernel.namespaces is None else "uid"
    return "namespace" if has_bubblewrap and kernel.user_namespace is None else "same-uid"


def check_kernelbench() -> Finding:
    from kbenv.problems.loaders import kernelbench

    name, variable = "KernelBench checkout", kernelbench.ENVIRONMENT_VARIABLE
    value = os.environ.get(variable)
    if not value:
        advice = f"git clone https://github.com/ScalingIntelligence/KernelBench and set {variable} to its folder"
        return Finding(name, "optional", f"{variable} is not set", advice)
    try:
        count = len(kernelbench.find(Path(value)))
    except ProblemNotFoundError as e:
        return Finding(name, "missing", str(e), f"correct or unset {variable}")
    return Finding(name, "ok", f"{count} problems in {value}")


def check_problem_sets() -> tuple[Finding, ...]:
    """Each checkout that `KBENV_PROBLEM_SETS` names: how many problems it holds."""
    from kbenv.problems import SETS_VARIABLE
    from kbenv.problems.loaders import recognise

    findings = []
    for folder in filter(None, os.environ.get(SETS_VARIABLE, "").split(os.pathsep)):
        name = f"problem set {folder}"
        try:
            path = Path(folder).expanduser()
            findings.append(Finding(name, "ok", f"{len(recognise(path).find(path))} problems"))
        except (ProblemNotFoundError, RuntimeError) as e:
            findings.append(Finding(name, "missing", str(e), f"correct {SETS_VARIABLE}"))
    return tuple(findings)


def check_backend(backend: Backend, torch: TorchFacts) -> Finding:
    """Whether what a kernel language needs is there, its device included; that a kernel runs is another matter."""
    absent = [need for need in backend.needs if not _is_there(need)]
    lacking = [need.package or need.variable or " or ".join(need.programs) for need in absent]
    advice = [need.advice for need in absent]
    if backend.device is None:
        lacking.append(f"a device that kbenv judges on (it has none of {backend.vendor})")
    elif backend.device != "cpu" and torch.cuda is None:
        lacking.append("a CUDA build of torch")
        advice.append("install a CUDA build of torch, where there is a GPU")
    elif backend.device != "cpu" and not torch.gpus:
        lacking.append("a GPU that torch can use")
    what = backend.title if backend.proven else f"{backend.title}; declared only, kernels of it have not been judged"
    if not lacking:
        return Finding(f"backend {backend.name}", "ok", what)
    words = "; ".join(dict.fromkeys(advice)) or None
    return Finding(f"backend {backend.name}", "optional", f"{what}; lacks {', '.join(lacking)}", words)


# -- small steps ------------------------------------------------------------------------------------------------------


def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_there(need: Requirement) -> bool:
    if need.package is not None:
        return _find_version(need.package) is not None
    if need.variable is not None:
        return Path(os.environ.get(need.variable) or os.devnull).is_dir()
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return any(shutil.which(name) or shutil.which(name, path=f"{home}/bin") for name in need.programs)


def _join(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
