"""The doctor says what is there, what is missing, and what to do; each finding from given facts."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kbenv import doctor, engine_finding
from kbenv.cli import main
from kbenv.doctor import KernelFacts, TorchFacts
from kbenv.engine_finding import Engine, check_engine, probe_engine
from kbenv.finding import Finding, ask_child
from kbenv.sandbox.engine import EngineFacts

CPU_TORCH = TorchFacts(version="2.9.0+cpu", cuda=None, gpus=(), error=None)
CUDA_TORCH = TorchFacts(version="2.11.0+cu130", cuda="13.0", gpus=("NVIDIA H200, 140 GiB",), error=None)
NO_TORCH = TorchFacts(version=None, cuda=None, gpus=(), error="ModuleNotFoundError: No module named 'torch'")
ALL_ALLOWED = KernelFacts(user_namespace=None, namespaces=None, seccomp=None)
FACTS = EngineFacts(
    version="28.5.1",
    cpus=2,
    memory_bytes=8 << 30,
    cgroup_version="2",
    memory_limit=True,
    swap_limit=True,
    pids_limit=True,
    seccomp=True,
    rootless=False,
    user_namespaces=True,
    runtimes=("io.containerd.runc.v2", "nvidia", "runc", "runsc"),
    is_local=True,
    gpu_access=("nvidia",),
    cgroup_driver="systemd",
    cpu_quota=True,
    init=True,
    address="unix:///var/run/docker.sock",
    tls=False,
)
"""An engine that lacks nothing."""
INFO = {
    "ServerVersion": "28.5.1", "NCPU": 2, "MemTotal": 8 << 30, "CgroupVersion": "2", "CgroupDriver": "systemd",
    "MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True, "InitCommit": {"ID": "de40ad0"},
    "SecurityOptions": ["name=seccomp,profile=builtin"], "Runtimes": {"runc": {}},
}  # fmt: skip
NONE_ALLOWED = KernelFacts(user_namespace="unshare: no", namespaces="unshare: no", seccomp="prctl: no")


@pytest.fixture(scope="module")
def findings() -> tuple[Finding, ...]:
    return doctor.examine()


def test_this_machine_is_examined_without_importing_torch() -> None:
    script = (
        "import sys; from kbenv.doctor import examine; findings = examine(); "
        "assert 'torch' not in sys.modules; print(len(findings))"
    )
    assert int(subprocess.check_output([sys.executable, "-c", script], text=True)) > 15


def test_every_finding_that_is_not_ok_says_what_is_there_and_no_name_comes_twice(
    findings: tuple[Finding, ...],
) -> None:
    assert len({finding.name for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.found
        assert "\n" not in finding.found
        if finding.state == "missing":
            assert finding.advice


def test_a_machine_that_runs_these_tests_can_judge_on_the_cpu(findings: tuple[Finding, ...]) -> None:
    by_name = {finding.name: finding for finding in findings}
    for name in ("Python", "torch", "memfd", "temporary folder"):
        assert by_name[name].state == "ok"
        assert by_name[name].needed_for == "cpu"


def test_json_holds_every_finding(
    findings: tuple[Finding, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["can_judge_on_cpu"] is (code == 0)
    assert [finding["name"] for finding in report["findings"]] == [finding.name for finding in findings]
    assert set(report["findings"][0]) == {"name", "state", "found", "advice", "needed_for"}


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (Finding("torch", "ok", "2.9", needed_for="cpu"), 0),
        (Finding("torch", "missing", "none", "install it", "cpu"), 1),
        (Finding("cuda-bindings", "missing", "none", "install it", "gpu"), 0),
        (Finding("litellm", "optional", "none", "install it"), 0),
    ],
)
def test_the_exit_code_says_whether_the_cpu_can_judge(
    finding: Finding, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: (finding,))
    assert main(["doctor"]) == code
    found = finding.found if finding.advice is None else f"{finding.found} -> {finding.advice}"
    assert capsys.readouterr().out == f"{finding.name}\t{finding.state}\t{found}\n"


def test_torch_is_missing_when_it_cannot_be_imported_or_is_old() -> None:
    assert doctor.check_torch(NO_TORCH) == Finding(
        "torch",
        "missing",
        "ModuleNotFoundError: No module named 'torch'",
        "pip install 'torch>=2.9' into this interpreter's own site-packages",
        "cpu",
    )
    assert doctor.check_torch(TorchFacts("2.8.1", None, (), None)).state == "missing"
    assert doctor.check_torch(CPU_TORCH).found == "2.9.0+cpu, without CUDA"
    assert doctor.check_torch(CUDA_TORCH).state == "ok"


def test_a_gpu_that_torch_cannot_use_is_missing_and_no_gpu_is_optional() -> None:
    assert [finding.state for finding in doctor.check_gpu(CUDA_TORCH, "580.95")] == ["ok", "ok"]
    assert [finding.state for finding in doctor.check_gpu(CPU_TORCH, None)] == ["optional", "optional"]
    driver, gpu = doctor.check_gpu(CPU_TORCH, "580.95")
    assert (driver.state, driver.found, gpu.state) == ("ok", "580.95", "missing")
    assert "CUDA build of torch" in (gpu.advice or "")
    _, hidden = doctor.check_gpu(TorchFacts("2.11.0", "13.0", (), None), "580.95")
    assert "CUDA_VISIBLE_DEVICES" in (hidden.advice or "")


def test_tools_that_no_verdict_needs_are_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_tool", lambda: None)
    monkeypatch.setattr(doctor, "find_program", lambda name: f"/bin/{name}")
    monkeypatch.setattr(doctor, "_counters_are_restricted", lambda: True)
    cuobjdump, ncu, sanitizer = doctor.check_gpu_tools()
    assert (cuobjdump.state, ncu.state, sanitizer.state) == ("optional", "optional", "ok")
    assert "root alone" in ncu.found
    monkeypatch.setattr(doctor, "_counters_are_restricted", lambda: False)
    assert doctor.check_gpu_tools()[1] == Finding("ncu", "ok", "at /bin/ncu")


def test_what_the_gpu_needs_is_missing_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert doctor.check_nvcc(has_gpu=True).state == "missing"
    assert doctor.check_nvcc(has_gpu=False).state == "optional"
    assert doctor.check_package("no-such-package", "install it", "gpu", has_gpu=True).state == "missing"
    assert doctor.check_package("no-such-package", "install it", "gpu", has_gpu=False).state == "optional"
    assert doctor.check_package("no-such-package", "install it", None, has_gpu=True).state == "optional"
    assert doctor.check_package("pytest", "install it", None, has_gpu=False).state == "ok"


def test_a_compiler_is_the_one_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\necho mycc 1.2\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert doctor.check_compiler("C++ compiler", "CXX", ("c++", "g++")).state == "missing"
    assert doctor.check_compiler("C++ compiler", "CXX", ("c++", "mycc")).found == f"{compiler}: mycc 1.2"
    monkeypatch.setenv("CXX", "mycc -O2")
    assert doctor.check_compiler("C++ compiler", "CXX", ("c++",)).state == "ok"
    monkeypatch.setenv("CXX", "other")
    finding = doctor.check_compiler("C++ compiler", "CXX", ("c++", "mycc"))
    assert (finding.state, finding.found) == ("missing", "CXX=other: not on PATH")


@pytest.mark.parametrize(
    ("is_root", "has_bubblewrap", "kernel", "level"),
    [
        (True, False, ALL_ALLOWED, "full"),
        (True, True, NONE_ALLOWED, "uid"),
        (False, True, ALL_ALLOWED, "namespace"),
        (False, False, ALL_ALLOWED, "same-uid"),
        (False, True, NONE_ALLOWED, "same-uid"),
    ],
)
def test_the_expected_isolation_follows_from_privilege_and_kernel(
    is_root: bool, has_bubblewrap: bool, kernel: KernelFacts, level: str
) -> None:
    assert doctor.expected_isolation(is_root=is_root, has_bubblewrap=has_bubblewrap, kernel=kernel) == level


def test_what_the_kernel_refuses_is_said_in_its_words() -> None:
    assert doctor.check_user_namespaces(NONE_ALLOWED).found == "refused: unshare: no"
    assert doctor.check_seccomp(NONE_ALLOWED).found == "refused: prctl: no"
    assert doctor.check_user_namespaces(ALL_ALLOWED).state == "ok"


def test_the_kernel_s_probe_leaves_this_process_alone() -> None:
    before = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
    mounts = Path("/proc/self/mounts").read_text()
    facts = doctor.probe_kernel()
    assert {name: os.readlink(f"/proc/self/ns/{name}") for name in before} == before
    assert Path("/proc/self/mounts").read_text() == mounts
    assert facts.seccomp is None or facts.seccomp.startswith("prctl")


def test_a_probe_that_fails_says_why() -> None:
    assert ask_child("import no_such_module") == "ModuleNotFoundError: No module named 'no_such_module'"
    assert ask_child("raise SystemExit(4)") == "the probe ended with status 4"


def test_a_folder_that_cannot_be_written_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    finding = doctor.check_temporary_folder()
    assert (finding.state, finding.needed_for) == ("missing", "cpu")
    assert "TMPDIR" in (finding.advice or "")


def test_a_child_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = (
        "import pathlib, subprocess, sys, time; child = subprocess.Popen(['sleep', '60']); "
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid)); time.sleep(60)"
    )
    path = tmp_path / "pid"
    assert ask_child(script, str(path), timeout_s=5) == "no answer within 5 s"
    assert _ends(int(path.read_text()))


def test_an_engine_that_lacks_nothing_is_ok_throughout() -> None:
    findings = check_engine(Engine(FACTS, "sha256:0123456789abcdef"), has_gpu=True, toolkit="1.19.1")
    assert {finding.name: finding.state for finding in findings if finding.state != "ok"} == {}
    assert not any(finding.advice or finding.needed_for for finding in findings)
    assert _found(findings, "Docker engine") == "28.5.1 at unix:///var/run/docker.sock"
    assert _found(findings, "engine: image") == "kbenv-sandbox, sha256:0123456789ab"
    assert _found(findings, "engine: cgroup") == "v2, driver systemd"


@pytest.mark.parametrize(
    ("lack", "name", "state", "advice"),
    [
        ({"memory_limit": False}, "engine: memory limit", "missing", "cgroup_enable=memory"),
        ({"swap_limit": False}, "engine: swap limit", "missing", "swapaccount=1"),
        ({"pids_limit": False, "cgroup_version": "1"}, "engine: pids limit", "missing", "mount -t cgroup -o pids"),
        ({"pids_limit": False}, "engine: pids limit", "missing", "cgroup controller pids"),
        ({"cpu_quota": False, "cgroup_version": "1"}, "engine: cpu quota", "missing", "mount -t cgroup -o cpu"),
        ({"memory_limit": False, "rootless": True}, "engine: memory limit", "missing", "Delegate=cpu cpuset io memory"),
        ({"pids_limit": False, "rootless": True}, "engine: pids limit", "missing", "Delegate=cpu cpuset io memory"),
        (
            {"memory_limit": False, "rootless": True, "cgroup_version": "1", "cgroup_driver": "none"},
            "engine: memory limit",
            "missing",
            "systemd.unified_cgroup_hierarchy=1",
        ),
        ({"rootless": True, "cgroup_driver": "none"}, "engine: cgroup", "missing", "dockerd-rootless-setuptool.sh"),
        ({"seccomp": False}, "engine: seccomp", "missing", "CONFIG_SECCOMP_FILTER"),
        ({"user_namespaces": False}, "engine: users", "optional", '"userns-remap": "default"'),
        ({"init": False}, "engine: init", "missing", "tini-static"),
        ({"runtimes": ("runc",)}, "engine: gVisor", "optional", "runsc install"),
        ({"gpu_access": ()}, "engine: GPU", "missing", "--runtime=docker && systemctl restart docker"),
        ({"gpu_access": ("devices",)}, "engine: GPU", "optional", "nvidia-ctk runtime configure --runtime=docker"),
        ({"gpu_access": (), "rootless": True}, "engine: GPU", "missing", "systemctl --user restart docker"),
        ({"gpu_access": (), "is_local": False}, "engine: GPU", "optional", "where the engine's machine has a GPU"),
    ],
)
def test_what_an_engine_lacks_is_said_with_what_mends_it(
    lack: dict[str, Any], name: str, state: str, advice: str
) -> None:
    findings = check_engine(Engine(replace(FACTS, **lack), "sha256:0"), has_gpu=True, toolkit=None)
    (finding,) = (finding for finding in findings if finding.name == name)
    assert finding.state == state
    assert advice in (finding.advice or "")
    assert doctor.can_judge_on_cpu(findings)


def test_cgroup_v1_and_rootless_are_no_lack_by_themselves() -> None:
    assert engine_finding.check_cgroup(replace(FACTS, cgroup_version="1", cgroup_driver="cgroupfs")).state == "ok"
    assert "rootless" in engine_finding.check_users(replace(FACTS, rootless=True)).found


@pytest.mark.parametrize(
    ("address", "is_local", "tls", "state", "found"),
    [
        ("unix:///run/user/1000/docker.sock", True, False, "ok", "unix socket"),
        ("ssh://gpu@box", False, False, "ok", "ssh"),
        ("tcp://box:2376", False, True, "ok", "TLS"),
        ("tcp://127.0.0.1:2375", False, False, "ok", "on loopback"),
        ("tcp://[::1]:2375", False, False, "ok", "on loopback"),
        ("tcp://localhost:2375", False, False, "ok", "on loopback"),
        ("tcp://10.0.0.7:2375", False, False, "missing", "unencrypted, and whoever reaches 10.0.0.7 is root there"),
        ("box:2375", False, False, "missing", "tcp without TLS"),
    ],
)
def test_an_engine_that_anyone_may_command_is_named(
    address: str, is_local: bool, tls: bool, state: str, found: str
) -> None:
    finding = engine_finding.check_connection(replace(FACTS, address=address, is_local=is_local, tls=tls))
    assert finding.state == state
    assert found in finding.found
    assert (finding.advice is None) == (state == "ok")


@pytest.mark.parametrize(
    ("version", "escapes"),
    [
        ("1.16.1", ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266", "CVE-2026-24260"]),
        ("1.16.2", ["CVE-2025-23359", "CVE-2025-23266", "CVE-2026-24260"]),
        ("1.17.7", ["CVE-2025-23266", "CVE-2026-24260"]),
        ("1.17.8", ["CVE-2026-24260"]),
        ("1.19.0-1", ["CVE-2026-24260"]),
        ("1.19.1", []),
        ("2.0.0", []),
    ],
)
def test_a_toolkit_from_which_containers_escape_is_missing_its_update(version: str, escapes: list[str]) -> None:
    (finding,) = engine_finding.check_toolkit(FACTS, version)
    assert finding.state == ("missing" if escapes else "ok")
    assert [word for word in finding.found.replace(",", "").split() if word.startswith("CVE")] == escapes
    assert (finding.advice or "").startswith("to 1.19.1 or later: ") == bool(escapes)


def test_a_toolkit_is_spoken_of_where_it_is_used_or_installed() -> None:
    elsewhere = replace(FACTS, is_local=False, address="ssh://box")
    assert [finding.state for finding in engine_finding.check_toolkit(elsewhere, "1.16.1")] == ["optional"]
    assert [finding.state for finding in engine_finding.check_toolkit(FACTS, None)] == ["optional"]
    assert engine_finding.check_toolkit(replace(FACTS, gpu_access=("devices",)), None) == ()
    assert engine_finding.check_toolkit(replace(FACTS, gpu_access=("devices",)), "1.16.1")[0].state == "missing"


@pytest.mark.parametrize(
    ("tool", "words", "version"),
    [
        ("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80", "1.17.8"),
        ("nvidia-container-cli", "cli-version: 1.16.1\nlib-version: 1.16.1", "1.16.1"),
        ("nvidia-ctk", "no such thing", None),
        ("other", "version 1.17.8", None),
    ],
)
def test_the_toolkit_s_version_is_what_its_tools_say(
    tool: str, words: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / tool
    path.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{words}'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_finding.probe_toolkit() == version


@pytest.mark.parametrize(
    ("engine", "on_gpu", "found"),
    [
        (Engine(FACTS, "sha256:0"), True, "docker: an engine answers and has our image"),
        (Engine(FACTS, None), False, "not docker: the engine has no image kbenv-sandbox"),
        (Engine(replace(FACTS, gpu_access=()), "sha256:0"), True, "not docker: the engine gives containers no GPU"),
        (Engine(replace(FACTS, gpu_access=(), is_local=False), "sha256:0"), True, "docker: "),
        (Engine(replace(FACTS, gpu_access=()), "sha256:0"), False, "docker: "),
        ("no Docker engine answers at unix:///x", False, "not docker: no engine answers"),
    ],
)
def test_the_sandbox_that_auto_takes_is_named_with_why(engine: Engine | str, on_gpu: bool, found: str) -> None:
    finding = doctor.check_sandbox(ALL_ALLOWED, engine, on_gpu=on_gpu)
    assert finding.name == "sandbox"
    assert found in finding.found
    assert finding.found.startswith("process, isolation ") == ("not docker" in found)


def test_no_image_is_mended_by_one_command() -> None:
    assert engine_finding.check_image(None) == Finding(
        "engine: image", "optional", "no kbenv-sandbox", "kbenv sandbox build"
    )


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("unix:///nowhere/docker.sock", "No such file or directory"),
        ("tcp://127.0.0.1:1", "Connection refused"),
        ("nonsense", "Invalid bind address"),
        ("ssh://127.0.0.1:1", ""),
    ],
)
def test_where_no_engine_answers_one_line_says_so(address: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DOCKER_HOST", address)
    engine = probe_engine()
    assert isinstance(engine, str)
    assert engine.startswith(f"no Docker engine answers at {address} (")
    assert found in engine
    (finding,) = check_engine(engine, has_gpu=False, toolkit=None)
    assert (finding.name, finding.state, finding.found) == ("Docker engine", "optional", engine)
    assert finding.advice


def test_what_bars_the_way_to_an_engine_is_mended_by_its_own_command() -> None:
    assert "usermod -aG docker" in (engine_finding.check_absence("x (Permission denied)").advice or "")
    assert "pip install paramiko" in (engine_finding.check_absence("x (Install paramiko package)").advice or "")


def test_an_engine_cannot_be_asked_without_docker_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker.py").write_text("raise ImportError('none')")
    monkeypatch.syspath_prepend(tmp_path)
    engine = probe_engine()
    assert isinstance(engine, str)
    assert engine.startswith("the Docker sandbox needs docker-py: pip install")


def test_an_engine_that_hangs_does_not_hang_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/docker.sock")
        listener.listen()
        start = time.monotonic()
        engine = probe_engine(timeout_s=1)
        assert time.monotonic() - start < 20
    assert isinstance(engine, str)
    assert f"unix://{tmp_path}/docker.sock" in engine


def test_an_engine_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with _listening(tmp_path, b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", drip=True):
        engine = probe_engine(timeout_s=3)
    assert engine == f"no answer within 3 s from unix://{tmp_path}/docker.sock"


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\x00 garbage\n\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": 7}',
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": "1.0"}',
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": "a.b"}',
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": "1.41"}',
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": "1.41", "ServerVersion": "x", "NCPU": "many"}',
        b'HTTP/1.1 200 OK\r\n\r\n{"ApiVersion": "1.41", "ServerVersion": "x", "DiscoveredDevices": [1]}',
        b'HTTP/1.1 500 \x1b[31m\r\n\r\n{"message": "a\\nb\\u001b[31m"}',
    ],
)
def test_garbage_is_no_engine_and_no_traceback(answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with _listening(tmp_path, answer):
        engine = probe_engine()
    assert isinstance(engine, str)
    assert engine.startswith(("no Docker engine answers at unix:", "what answers at unix:"))
    assert engine.isprintable()
    assert "Traceback" not in engine


@pytest.mark.parametrize("image", ["sha256:0123", None])
def test_what_an_engine_says_over_tcp_becomes_facts(image: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    with _engine(INFO, image) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        engine = probe_engine()
    assert isinstance(engine, Engine), engine
    assert engine.image == image
    expected = replace(
        FACTS, swap_limit=False, user_namespaces=False, runtimes=("runc",), is_local=False, gpu_access=(),
        address=address,
    )  # fmt: skip
    assert asdict(engine.facts) == asdict(expected)
    findings = check_engine(engine, has_gpu=False, toolkit=None)
    assert {finding.name for finding in findings if finding.state == "missing"} == {"engine: swap limit"}


@pytest.mark.docker
def test_a_running_engine_is_described() -> None:
    engine = probe_engine()
    if isinstance(engine, str):
        pytest.skip(engine)
    findings = check_engine(engine, has_gpu=False, toolkit=None)
    assert findings[0].state == "ok"
    assert len({finding.name for finding in findings}) == len(findings) > 10


def test_a_narrow_terminal_is_no_crash(
    findings: tuple[Finding, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = replace(FACTS, memory_limit=False, swap_limit=False, seccomp=False, init=False)
    rows = (*findings, *check_engine(Engine(lacking, None), has_gpu=True, toolkit="1.16.1"))
    monkeypatch.setattr(doctor, "examine", lambda: rows)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    main(["doctor"])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(len(line) for line in lines) <= 40
    for finding in rows:
        assert any(line.startswith(finding.name) for line in lines)


def test_a_checkout_is_counted_and_a_wrong_one_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KBENV_KERNELBENCH", raising=False)
    assert doctor.check_kernelbench().state == "optional"
    monkeypatch.setenv("KBENV_KERNELBENCH", str(tmp_path))
    assert doctor.check_kernelbench().state == "missing"
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "19_ReLU.py").write_text("")
    assert doctor.check_kernelbench().found == f"1 problems in {tmp_path}"


# -- made-up engines --------------------------------------------------------------------------------------------------


def _found(findings: tuple[Finding, ...], name: str) -> str:
    (found,) = (finding.found for finding in findings if finding.name == name)
    return found


def _ends(pid: int) -> bool:
    """Whether the process is gone, or a zombie that nobody has reaped, within some seconds."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def _listening(folder: Path, answer: bytes, *, drip: bool = False) -> Iterator[None]:
    """Answers whatever is asked at folder/docker.sock with `answer`, and then with a letter now and then."""
    is_over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with contextlib.suppress(OSError):
                self.request.sendall(answer)
                while drip and not is_over.wait(0.1):
                    self.request.sendall(b" ")

    with socketserver.ThreadingUnixStreamServer(f"{folder}/docker.sock", Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            server.shutdown()


@contextlib.contextmanager
def _engine(info: dict[str, Any], image: str | None) -> Iterator[str]:
    """An engine on loopback that says `info` of itself and has our image or not; yields its DOCKER_HOST."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what = self.path.rpartition("/")[2]
            known: dict[str, Any] = {"version": {"ApiVersion": "1.41"}, "_ping": "OK", "info": info}
            if image is not None:
                known["json"] = {"Id": image}  # of /images/kbenv-sandbox/json
            body = json.dumps(known.get(what, {"message": f"No such image: {self.path}"})).encode()
            self.send_response(200 if what in known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"tcp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_each_problem_set_is_counted_and_a_wrong_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good" / "level1").mkdir(parents=True)
    (tmp_path / "good" / "level1" / "19_ReLU.py").write_text("")
    monkeypatch.setenv("KBENV_PROBLEM_SETS", f"{tmp_path / 'good'}:{tmp_path / 'none'}")
    good, none = doctor.check_problem_sets()
    assert (good.state, good.found) == ("ok", "1 problems")
    assert (none.state, none.advice) == ("missing", "correct KBENV_PROBLEM_SETS")
    monkeypatch.delenv("KBENV_PROBLEM_SETS")
    assert doctor.check_problem_sets() == ()
