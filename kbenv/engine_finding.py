"""What the Docker engine enforces on this machine and what not, each with the command that mends it.

An engine is asked in a child process with a deadline, and what it says is believed: that a limit really holds is shown
by tests/docker, in containers. Nothing here keeps the process sandbox from judging.
"""

from __future__ import annotations

import ipaddress
import json
import re
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kbenv.finding import Finding, ask_child, read_tool
from kbenv.sandbox.engine import IMAGE, EngineFacts, address

_REQUEST_TIMEOUT_S = 15.0
"""`docker info` of a busy engine was seen to take more than 5 s: it runs the version commands of all its parts."""
_TIMEOUT_S = 30.0

_ESCAPES = (
    ("CVE-2024-0132", (1, 16, 2)),
    ("CVE-2025-23359", (1, 17, 4)),
    ("CVE-2025-23266", (1, 17, 8)),
    ("CVE-2026-24260", (1, 19, 1)),
)
"""Ways out of a container through NVIDIA's container toolkit, and the version that closed each: the first from its CVE
record, the others from NVIDIA's security bulletins 5616, 5659 and 5850 (https://www.nvidia.com/security)."""
_SAFE_TOOLKIT = ".".join(map(str, max(fixed for _, fixed in _ESCAPES)))

_DELEGATE = (
    "mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' "
    "> /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload"
)


@dataclass(frozen=True)
class Engine:
    """An engine that answered; `image` is the id of ours there, None when it has none."""

    facts: EngineFacts
    image: str | None


# `sys.path` is the caller's, and so are docker-py and kbenv; whatever an engine answers, one line says what was wrong.
_PROBE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from dataclasses import asdict
from kbenv.sandbox.engine import EngineError, address, connect, facts_of, find_image
try:
    client = connect(float(sys.argv[2]))
    print(json.dumps({"facts": asdict(facts_of(client)), "image": find_image(client)}))
except EngineError as error:
    sys.exit(" ".join(str(error).split()))
except Exception as error:
    sys.exit(" ".join(f"what answers at {address()} is no Docker engine ({type(error).__name__}: {error})".split()))
"""


def probe_engine(timeout_s: float = _TIMEOUT_S) -> Engine | str:
    """The engine that DOCKER_HOST names, or in words why none answers."""
    answer = ask_child(_PROBE, json.dumps(sys.path), str(min(_REQUEST_TIMEOUT_S, timeout_s)), timeout_s=timeout_s)
    if isinstance(answer, str):
        return _printable(answer if address() in answer else f"{answer} from {address()}")
    facts: dict[str, Any] = {name: _from_json(value) for name, value in answer["facts"].items()}
    return Engine(EngineFacts(**facts), answer["image"])


def probe_toolkit() -> str | None:
    """The version of NVIDIA's container toolkit on this machine, None when it is not installed."""
    for tool in ("nvidia-ctk", "nvidia-container-cli"):
        if match := re.search(r"version:? (\d+\.\d+\.\d+\S*)", read_tool([tool, "--version"]) or ""):
            return match[1]
    return None


def check_engine(engine: Engine | str, *, has_gpu: bool, toolkit: str | None) -> tuple[Finding, ...]:
    """All about an engine, from given facts; `has_gpu` and `toolkit` are this machine's."""
    if isinstance(engine, str):
        return (check_absence(engine),)
    facts = engine.facts
    return (
        Finding("Docker engine", "ok", f"{facts.version} at {facts.address}"),
        check_connection(facts),
        check_image(engine.image),
        check_cgroup(facts),
        check_memory(facts),
        check_swap(facts),
        check_pids(facts),
        check_cpu(facts),
        check_seccomp(facts),
        check_users(facts),
        check_init(facts),
        check_gpu_access(facts, has_gpu),
        *check_toolkit(facts, toolkit),
        check_gvisor(facts),
    )


def check_absence(reason: str) -> Finding:
    if "Permission denied" in reason:
        advice = "usermod -aG docker $USER, and log in again; the process sandbox needs no engine"
    elif "paramiko" in reason:
        advice = "pip install paramiko; the process sandbox needs no engine"
    else:
        advice = "the process sandbox needs no engine"
    return Finding("Docker engine", "optional", reason, advice)


def check_connection(facts: EngineFacts) -> Finding:
    """Who else can speak to the engine: that is as good as being root on its machine."""
    name = "engine: connection"
    if facts.is_local:
        return Finding(name, "ok", "unix socket")
    if facts.tls or facts.address.startswith("ssh:"):
        return Finding(name, "ok", "TLS" if facts.tls else "ssh")
    host = urlsplit(facts.address if "://" in facts.address else f"//{facts.address}").hostname or "localhost"
    if _is_loopback(host):
        return Finding(name, "ok", "tcp without TLS, on loopback: every user of this machine is root through it")
    found = f"tcp without TLS: unencrypted, and whoever reaches {host} is root there"
    return Finding(name, "missing", found, f"export DOCKER_HOST=ssh://{host}, and close the port")


def check_image(image: str | None) -> Finding:
    if image is not None:
        return Finding("engine: image", "ok", f"{IMAGE}, {image[:19]}")
    return Finding("engine: image", "optional", f"no {IMAGE}", "kbenv sandbox build")


def check_cgroup(facts: EngineFacts) -> Finding:
    found = f"v{facts.cgroup_version}, driver {facts.cgroup_driver}"
    if facts.cgroup_driver != "none":
        return Finding("engine: cgroup", "ok", found)
    return Finding("engine: cgroup", "missing", f"{found}: no limit holds", _mend_rootless(facts))


def check_memory(facts: EngineFacts) -> Finding:
    without = "not enforced: a submission can take all memory"
    return _check_limit(facts, "memory limit", facts.memory_limit, without, _boot("cgroup_enable=memory"))


def check_swap(facts: EngineFacts) -> Finding:
    without = "not enforced: beyond its memory a submission can take all swap"
    return _check_limit(facts, "swap limit", facts.swap_limit, without, f"swapoff -a, or {_boot('swapaccount=1')}")


def check_pids(facts: EngineFacts) -> Finding:
    without = "not enforced: a fork bomb takes the machine"
    return _check_limit(facts, "pids limit", facts.pids_limit, without, _mount(facts, "pids"))


def check_cpu(facts: EngineFacts) -> Finding:
    without = "not enforced: a submission can use every processor"
    return _check_limit(facts, "cpu quota", facts.cpu_quota, without, _mount(facts, "cpu"))


def check_seccomp(facts: EngineFacts) -> Finding:
    if facts.seccomp:
        return Finding("engine: seccomp", "ok", "system calls filtered")
    advice = "run it on a kernel with CONFIG_SECCOMP_FILTER, built with seccomp (apt-get install docker.io)"
    return Finding("engine: seccomp", "missing", "no filter but the runners' own", advice)


def check_users(facts: EngineFacts) -> Finding:
    name = "engine: users"
    if facts.rootless:
        return Finding(name, "ok", "rootless: root in a container is no root outside")
    if facts.user_namespaces:
        return Finding(name, "ok", "userns-remap: root in a container is no root outside")
    advice = (
        'for one wall more put "userns-remap": "default" into /etc/docker/daemon.json, then '
        "systemctl restart docker && kbenv sandbox build"
    )
    return Finding(name, "optional", "root in a container is root outside, without its capabilities", advice)


def check_init(facts: EngineFacts) -> Finding:
    if facts.init:
        return Finding("engine: init", "ok", "docker-init")
    advice = "apt-get install tini && ln -s /usr/bin/tini-static /usr/local/bin/docker-init"
    return Finding("engine: init", "missing", "no docker-init: no container of ours can start", advice)


def check_gpu_access(facts: EngineFacts, has_gpu: bool) -> Finding:
    name = "engine: GPU"
    ways = [{"nvidia": "NVIDIA's runtime", "cdi": "CDI"}[way] for way in facts.gpu_access if way != "devices"]
    if ways:
        return Finding(name, "ok", ", ".join(ways))
    settings = "--config=$HOME/.config/docker/daemon.json " if facts.rootless else ""
    restart = "systemctl --user restart docker" if facts.rootless else "systemctl restart docker"
    configure = f"nvidia-ctk runtime configure --runtime=docker {settings}&& {restart}"
    if "devices" in facts.gpu_access:
        return Finding(name, "optional", "device files only, no NVIDIA runtime", configure)
    if not facts.is_local:
        return Finding(name, "optional", "no NVIDIA runtime", f"where the engine's machine has a GPU: {configure}")
    if has_gpu:
        return Finding(name, "missing", "no NVIDIA runtime, no CDI, no /dev/nvidiactl", configure)
    return Finding(name, "optional", "none")


def check_toolkit(facts: EngineFacts, version: str | None) -> tuple[Finding, ...]:
    """NVIDIA's container toolkit, where the engine uses it or this machine, being the engine's, has it."""
    name = "NVIDIA toolkit"
    is_used = "nvidia" in facts.gpu_access or "cdi" in facts.gpu_access
    if not facts.is_local or version is None:
        advice = f"nvidia-ctk --version on the engine's machine: before {_SAFE_TOOLKIT} containers can escape"
        return (Finding(name, "optional", "version unknown", advice),) if is_used else ()
    installed = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    escapes = [cve for cve, fixed in _ESCAPES if installed < fixed]
    if not escapes:
        return (Finding(name, "ok", version),)
    update = "apt-get update && apt-get install --only-upgrade nvidia-container-toolkit"
    found = f"{version}, from which containers can escape: {', '.join(escapes)}"
    return (Finding(name, "missing", found, f"to {_SAFE_TOOLKIT} or later: {update}"),)


def check_gvisor(facts: EngineFacts) -> Finding:
    if any("runsc" in runtime for runtime in facts.runtimes):
        return Finding("engine: gVisor", "ok", "runsc")
    advice = "for a kernel of the submission's own: runsc install && systemctl restart docker"
    return Finding("engine: gVisor", "optional", "runsc is not registered", advice)


def refuse_docker(engine: Engine | str, *, on_gpu: bool) -> str | None:
    """Why `--sandbox auto` leaves Docker alone, as `kbenv.sandbox.choice` decides it; None when it takes it.

    `on_gpu`: torch sees a GPU on this machine.
    """
    if isinstance(engine, str):
        return "no engine answers"
    if engine.image is None:
        return f"the engine has no image {IMAGE}"
    keeps_gpu = bool(engine.facts.gpu_access) or not engine.facts.is_local  # elsewhere, this machine's GPU is no loss
    return "the engine gives containers no GPU" if on_gpu and not keeps_gpu else None


# -- small steps ------------------------------------------------------------------------------------------------------


def _from_json(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else _printable(value) if isinstance(value, str) else value


def _printable(text: str) -> str:
    """On one line and without control characters: an engine's words go to a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _check_limit(facts: EngineFacts, what: str, holds: bool, without: str, command: str) -> Finding:
    if holds:
        return Finding(f"engine: {what}", "ok", "enforced")
    return Finding(f"engine: {what}", "missing", without, _mend_rootless(facts) if facts.rootless else command)


def _mend_rootless(facts: EngineFacts) -> str:
    """A rootless engine has limits only by cgroup v2, from systemd, and those that are delegated to its user."""
    if facts.cgroup_version != "2":
        return _boot("systemd.unified_cgroup_hierarchy=1")
    return "dockerd-rootless-setuptool.sh install" if facts.cgroup_driver == "none" else _DELEGATE


def _boot(parameter: str) -> str:
    return f"""sed -i 's/^GRUB_CMDLINE_LINUX="/&{parameter} /' /etc/default/grub && update-grub && reboot"""


def _mount(facts: EngineFacts, controller: str) -> str:
    if facts.cgroup_version == "2":
        return f"boot a kernel with the cgroup controller {controller} (see /sys/fs/cgroup/cgroup.controllers)"
    folder = f"/sys/fs/cgroup/{controller}"
    return f"mkdir -p {folder} && mount -t cgroup -o {controller} cgroup {folder}, and restart the engine"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
