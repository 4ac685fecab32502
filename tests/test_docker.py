"""What the Docker sandbox asks of an engine and says to a container, without an engine."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import kbenv.sandbox.docker as docker_module
from kbenv.protocol import Limits
from kbenv.sandbox.docker import CAPABILITIES, DockerCarrier, DockerSettings, owner_label
from kbenv.sandbox.engine import LABEL, EngineError, EngineFacts, reason_of
from kbenv.sandbox.wire import Channel

FACTS = EngineFacts(
    version="28.5.1", cpus=8, memory_bytes=256 << 30, cgroup_version="2", memory_limit=True, swap_limit=True,
    pids_limit=True, seccomp=True, rootless=False, user_namespaces=False, runtimes=("nvidia", "runc"), is_local=True,
    gpu_access=("nvidia", "cdi", "devices"), cgroup_driver="systemd", cpu_quota=True, init=True,
    address="unix:///var/run/docker.sock", tls=False,
)  # fmt: skip
REMOTE = dataclasses.replace(FACTS, is_local=False, address="ssh://me@gpus", gpu_access=("nvidia",))


class Images:
    """Of an engine that has one image."""

    def __init__(self, environment: list[str]) -> None:
        self.id = "sha256:1"
        self.attrs = {"Config": {"Env": environment}}

    def get(self, name: str) -> Images:
        return self


class Client:
    def __init__(self, *environment: str) -> None:
        self.images = Images(list(environment))


def carrier_for(
    gpu: str | None = None, facts: EngineFacts = FACTS, environment: tuple[str, ...] = (), **settings: Any
) -> DockerCarrier:
    pytest.importorskip("docker")
    return DockerCarrier(Client(*environment), facts, gpu, DockerSettings(**settings))


def options_of(carrier: DockerCarrier, device: str = "cpu", **limits: Any) -> dict[str, Any]:
    return carrier._options(device, Limits(**limits))


# -- what is asked of the engine --------------------------------------------------------------------------------------


def test_a_container_has_nothing_that_it_does_not_need():
    options = options_of(carrier_for())
    assert options["cap_drop"] == ["ALL"]
    assert tuple(options["cap_add"]) == CAPABILITIES == ("SETUID", "SETGID", "KILL")
    assert options["security_opt"] == ["no-new-privileges"]
    assert options["network_mode"] == "none"
    assert options["ipc_mode"] == "private"
    assert options["read_only"]
    assert options["init"]
    assert options["mounts"] == []
    assert not {"volumes", "devices", "device_requests", "privileged", "pid_mode"} & options.keys()


def test_limits_of_the_protocol_become_the_containers():
    limits = {"host_memory_bytes": 8 << 30, "scratch_bytes": 3 << 20, "processes": 100, "open_files": 50}
    options = options_of(carrier_for(), **limits)
    assert options["mem_limit"] == options["memswap_limit"] == (8 << 30) + (4 << 30)
    assert options["pids_limit"] == 400
    assert f"size={3 << 20}," in options["tmpfs"]["/run/kbenv/scratch"]
    assert "mode=0700" in options["tmpfs"]["/run/kbenv/builds"]  # the judge's alone
    ulimits = {limit["Name"]: limit["Hard"] for limit in options["ulimits"]}
    assert ulimits == {"core": 0, "nofile": 200}


def test_memory_stays_below_that_of_the_engines_machine():
    small = dataclasses.replace(FACTS, memory_bytes=4 << 30)
    assert options_of(carrier_for(facts=small))["mem_limit"] == int((4 << 30) * 0.95)
    unknown = dataclasses.replace(FACTS, memory_bytes=0)
    assert options_of(carrier_for(facts=unknown))["mem_limit"] == (16 << 30) + (4 << 30)


def test_processors_are_all_of_the_engines_unless_told_otherwise():
    assert options_of(carrier_for())["nano_cpus"] == 8_000_000_000
    assert options_of(carrier_for(cpus=1.5))["nano_cpus"] == 1_500_000_000


def test_nothing_of_the_hosts_environment_is_handed_on(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in json.dumps(options_of(carrier_for())["environment"])


def test_mounts_are_read_only_and_never_made_where_they_are_missing():
    (mount,) = options_of(carrier_for(mounts=("/models",)))["mounts"]
    assert (mount["Type"], mount["Source"], mount["Target"], mount["ReadOnly"]) == ("bind", "/models", "/models", True)


def test_every_container_has_a_name_of_its_own_and_its_owners_label():
    carrier = carrier_for()
    first, second = options_of(carrier), options_of(carrier)
    assert first["name"] != second["name"]
    assert first["labels"] == second["labels"] == {LABEL: owner_label()}


def test_a_runtime_must_be_one_that_the_engine_knows():
    assert options_of(carrier_for(runtime="nvidia"))["runtime"] == "nvidia"
    with pytest.raises(EngineError, match=r"runtime must be one that the engine knows \(nvidia, runc\); found 'runsc'"):
        carrier_for(runtime="runsc")


def test_an_image_that_preloads_a_library_is_refused():
    with pytest.raises(EngineError, match="sets LD_PRELOAD"):
        carrier_for(environment=("LD_PRELOAD=/evil.so",))


def test_an_image_that_is_missing_is_never_pulled_and_the_error_names_the_command():
    docker = pytest.importorskip("docker")

    class NoImages:
        def get(self, name: str) -> None:
            raise docker.errors.ImageNotFound("no such image")

    client = Client()
    client.images = NoImages()
    with pytest.raises(EngineError, match="no image mine: make it with `kbenv sandbox build --tag mine`"):
        DockerCarrier(client, FACTS, None, DockerSettings(image="mine"))


@pytest.mark.parametrize(
    ("gpu", "facts", "expected"),
    [(None, FACTS, "cpu"), ("1", FACTS, "1"), (None, REMOTE, "ssh://me@gpus cpu"), ("1", REMOTE, "ssh://me@gpus 1")],
)
def test_a_lock_names_the_device_and_the_machine_that_it_is_in(gpu, facts, expected):
    assert carrier_for(gpu, facts).lock == expected


def test_a_verdict_can_say_which_image_engine_and_runtime_it_came_from():
    software = carrier_for(runtime="runc").software
    assert software == {"image": "kbenv-sandbox@sha256:1", "docker": "28.5.1", "runtime": "runc"}


# -- GPUs -------------------------------------------------------------------------------------------------------------


def test_a_gpu_is_asked_of_nvidias_runtime_by_its_name():
    options = options_of(carrier_for("GPU-1"), "cuda")
    (request,) = options["device_requests"]
    assert request["DeviceIDs"] == ["GPU-1"]
    assert request["Capabilities"] == [["gpu"]]
    assert options["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert options["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_a_gpu_is_asked_of_cdi_by_its_qualified_name():
    options = options_of(carrier_for("1", gpu_access="cdi"), "cuda")
    (request,) = options["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=1"])


def test_a_container_for_the_cpu_gets_no_gpu_from_an_nvidia_runtime_that_is_the_default():
    environment = options_of(carrier_for())["environment"]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_device_files_bring_one_gpu_and_the_drivers_libraries(monkeypatch, tmp_path):
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libGL.so.1"):
        (tmp_path / name).write_bytes(b"")
    present = {"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", str(tmp_path / "libcuda.so.1")}
    monkeypatch.setattr(docker_module.os.path, "exists", lambda path: str(path) in present)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    carrier = carrier_for("1", environment=("LD_LIBRARY_PATH=/opt/lib",), gpu_access="devices")
    options = options_of(carrier, "cuda")
    assert options["devices"] == [f"{path}:{path}:rw" for path in ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")]
    assert {Path(source).name: volume["mode"] for source, volume in options["volumes"].items()} == {
        "libcuda.so.1": "ro",
        "libnvidia-ml.so.1": "ro",
    }
    assert options["environment"]["LD_LIBRARY_PATH"] == "/run/kbenv-driver:/opt/lib"


def test_device_files_go_by_number():
    with pytest.raises(EngineError, match="found 'GPU-1': set CUDA_VISIBLE_DEVICES to numbers"):
        options_of(carrier_for("GPU-1", gpu_access="devices"), "cuda")


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        pytest.param(dataclasses.replace(FACTS, gpu_access=("cdi", "devices")), "auto", id="the best that it shows"),
        pytest.param(REMOTE, "cdi", id="asked for, and it need not show it"),
    ],
)
def test_the_way_to_the_gpu_is_the_one_asked_for_else_the_best_that_the_engine_shows(facts, asked):
    (request,) = options_of(carrier_for("0", facts, gpu_access=asked), "cuda")["device_requests"]
    assert request["Driver"] == "cdi"


def test_an_engine_that_shows_no_way_to_a_gpu_is_refused():
    with pytest.raises(EngineError, match="the engine gives containers no GPU: install the NVIDIA container toolkit"):
        carrier_for("0", dataclasses.replace(FACTS, gpu_access=()))


def test_what_the_engine_does_not_enforce_is_named():
    assert carrier_for().missing == ()
    weak = dataclasses.replace(FACTS, memory_limit=False, seccomp=False)
    missing = " ".join(carrier_for(facts=weak).missing)
    assert "memory limit" in missing
    assert "seccomp" in missing


# -- who owns a container ---------------------------------------------------------------------------------------------


def changed(**parts: str) -> str:
    names = ("machine", "boot", "pid", "started")
    return " ".join(parts.get(name, own) for name, own in zip(names, owner_label().split(" "), strict=True))


def test_a_container_of_this_process_is_no_orphan():
    assert not docker_module._is_orphan(owner_label())


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(changed(started="1"), id="a process that got the number of its owner"),
        pytest.param(changed(pid=str((1 << 22) + 1)), id="a number beyond every process's"),
        pytest.param(changed(boot="before"), id="an owner from before the last boot"),
    ],
)
def test_a_container_is_an_orphan_whose_owner_is_gone(label):
    assert docker_module._is_orphan(label)


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(changed(machine="another/4026531836", pid="1"), id="another machine"),
        pytest.param(changed(machine=f"{socket.gethostname()}/1", pid="1"), id="another pid namespace of that name"),
        pytest.param("", id="no name"),
        pytest.param("word", id="something else's label"),
    ],
)
def test_nobody_can_say_of_a_foreign_container_whether_it_is_an_orphan(label):
    assert not docker_module._is_orphan(label)


# -- what goes in and comes out ---------------------------------------------------------------------------------------


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack("!BxxxI", kind, len(data)) + data


@pytest.fixture
def pumped():
    """Starts both pumps: the host's end, the engine's end, the log, and the threads."""
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def start(first: bytes = b"") -> tuple[socket.socket, socket.socket, deque[bytes], list[threading.Thread]]:
        ours, theirs = socket.socketpair()
        stream, engine = socket.socketpair()
        for sock in (ours, engine):
            sock.settimeout(5.0)
        sockets.extend((ours, theirs, stream, engine))
        log: deque[bytes] = deque()
        threads.append(threading.Thread(target=docker_module._send, args=(first, theirs, stream)))
        threads.append(threading.Thread(target=docker_module._receive, args=(stream, theirs, log)))
        for thread in threads:
            thread.start()
        return ours, engine, log, threads

    yield start
    for sock in sockets:
        sock.close()
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()


def test_output_reaches_the_host_whatever_frames_it_comes_in_and_errors_the_log(pumped):
    ours, engine, log, _ = pumped()
    whole = frame(1, b"ab") + frame(2, b"a warning") + frame(1, b"") + frame(1, b"cd")
    for index in range(len(whole)):
        engine.sendall(whole[index : index + 1])
    received = b""
    while len(received) < 4:
        received += ours.recv(16)
    assert received == b"abcd"
    assert b"".join(log) == b"a warning"


def test_the_code_goes_in_before_what_the_host_says(pumped):
    ours, engine, _, _ = pumped(b"code")
    ours.sendall(b"job")
    received = b""
    while len(received) < 7:
        received += engine.recv(16)
    assert received == b"codejob"


def test_the_host_hears_that_a_container_ended_while_it_was_silent_itself(pumped):
    ours, engine, _, threads = pumped()
    engine.close()
    assert ours.recv(1) == b""
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()


def test_a_container_hears_that_the_host_ended(pumped):
    ours, engine, _, threads = pumped()
    ours.close()
    assert engine.recv(1) == b""
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()


def test_the_log_keeps_the_end_and_is_bounded(pumped):
    ours, engine, log, _ = pumped()
    for number in range(100):
        engine.sendall(frame(2, b"%099d\n" % number * 50))
    engine.close()
    assert ours.recv(1) == b""
    kept = b"".join(log)
    assert len(kept) <= docker_module._LOG_BYTES
    assert kept.endswith(b"%099d\n" % 99)


def test_what_is_sent_is_the_judges_code_and_none_of_the_hosts():
    code = docker_module._code()
    assert int.from_bytes(code[:4], "big") == len(code) - 4
    files = json.loads(code[4:])
    assert {"boot.py", "wire.py", "zygote.py", "confine.py", "judge/main.py", "runner/serve.py"} <= files.keys()
    assert not {"docker.py", "engine.py", "host.py", "process.py"} & files.keys()
    assert all("kbenv.errors" not in text and "import docker" not in text for text in files.values())


@pytest.mark.skipif(sys.platform != "linux", reason="a judge needs Linux")
def test_what_is_sent_is_enough_for_a_judge_to_start(tmp_path):
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-c", docker_module._BOOTSTRAP, str(tmp_path), "contained"]
    environment = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment, start_new_session=True) as process:
        theirs.close()
        try:
            ours.sendall(docker_module._code())
            channel = Channel(ours)
            assert channel.receive(timeout_s=60.0)["ready"]
            channel.send({"ping": True})
            assert channel.receive(timeout_s=10.0) == {"pong": True}
            channel.close()
            process.wait(timeout=10.0)
        finally:
            process.kill()


def test_a_bootstrap_that_is_cut_off_ends_and_says_why(tmp_path):
    code = docker_module._code()
    command = [sys.executable, "-I", "-c", docker_module._BOOTSTRAP, str(tmp_path), "contained"]
    ended = subprocess.run(command, input=code[: len(code) // 2], capture_output=True, check=False, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr == b"the host went away\n"


# -- reasons ----------------------------------------------------------------------------------------------------------


def test_a_reason_is_the_engines_own_explanation_where_it_gave_one():
    errors = pytest.importorskip("docker").errors
    error = errors.APIError("500 Server Error", explanation="no space left\non device")
    assert reason_of(error) == "no space left on device"


def test_a_reason_is_the_systems_word_where_one_lies_below():
    error = RuntimeError("HTTPConnectionPool(host='127.0.0.1'): Max retries exceeded")
    error.__context__ = ConnectionRefusedError(111, "Connection refused")
    assert reason_of(error) == "Connection refused"


def test_a_reason_is_the_message_on_one_line_where_nothing_better_is_known():
    assert reason_of(ValueError("what\n  was said")) == "what was said"
