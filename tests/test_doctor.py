"""The doctor says what is there, what is missing, and what to do; each finding from given facts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kbenv import doctor
from kbenv.cli import main
from kbenv.doctor import Finding, KernelFacts, TorchFacts

CPU_TORCH = TorchFacts(version="2.9.0+cpu", cuda=None, gpus=(), error=None)
CUDA_TORCH = TorchFacts(version="2.11.0+cu130", cuda="13.0", gpus=("NVIDIA H200, 140 GiB",), error=None)
NO_TORCH = TorchFacts(version=None, cuda=None, gpus=(), error="ModuleNotFoundError: No module named 'torch'")
ALL_ALLOWED = KernelFacts(user_namespace=None, namespaces=None, seccomp=None)
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
    assert doctor._ask_child("import no_such_module") == "ModuleNotFoundError: No module named 'no_such_module'"
    assert doctor._ask_child("raise SystemExit(4)") == "the probe ended with status 4"


def test_a_folder_that_cannot_be_written_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    finding = doctor.check_temporary_folder()
    assert (finding.state, finding.needed_for) == ("missing", "cpu")
    assert "TMPDIR" in (finding.advice or "")


def test_an_engine_is_asked_and_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    assert doctor.check_docker_engine().state == "optional"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        for header, state in (("Api-Version: 1.41\r\n", "ok"), ("", "optional")):
            answer = f"HTTP/1.1 200 OK\r\n{header}Content-Length: 2\r\n\r\nOK".encode()
            thread = threading.Thread(target=_answer_once, args=(listener, answer))
            thread.start()
            finding = doctor.check_docker_engine()
            thread.join()
            assert finding.state == state
    monkeypatch.setenv("DOCKER_HOST", "ssh://somewhere")
    assert "ssh is not looked at here" in doctor.check_docker_engine().found


def test_a_checkout_is_counted_and_a_wrong_one_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KBENV_KERNELBENCH", raising=False)
    assert doctor.check_kernelbench().state == "optional"
    monkeypatch.setenv("KBENV_KERNELBENCH", str(tmp_path))
    assert doctor.check_kernelbench().state == "missing"
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "19_ReLU.py").write_text("")
    assert doctor.check_kernelbench().found == f"1 problems in {tmp_path}"


def _answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(answer)
