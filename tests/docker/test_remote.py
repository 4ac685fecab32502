"""An engine on another machine serves as well: over a TCP port, and over ssh to a server that the tests start."""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kbenv.sandbox.docker as docker_module
from kbenv.evaluator import MAX_SOURCE_BYTES, Evaluator
from kbenv.sandbox.docker import owner_label
from kbenv.sandbox.engine import LABEL, EngineError, address, connect, facts_of
from tests.docker.proxy import EngineProxy
from tests.docker.rules import HONEST, RELU, quick_protocol
from tests.docker.traces import containers_of, locks_are_free, nothing_left, until

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else's containers and files are counted, nor anybody else's jobs waited for."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    owner = owner_label()
    monkeypatch.setattr(docker_module, "owner_label", lambda: f"{owner} {tmp_path.name}")


class SshServer:
    """An sshd of the tests' own on 127.0.0.1, for the user who runs them; a context manager.

    Attributes:
        home: a home folder whose .ssh holds the key and the server's name, for HOME.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        host_key, key, log = folder / "host_key", folder / "key", folder / "log"
        for path in (host_key, key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        (folder / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nAuthorizedKeysFile {key}.pub\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            f"SetEnv DOCKER_HOST={address()}\n"
        )
        public = (folder / "host_key.pub").read_text()
        (self.home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{self._port} {public}")
        (self.home / ".ssh" / "config").write_text(f"Host 127.0.0.1\n  IdentityFile {key}\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # which a service manager makes elsewhere
        command = [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-E", str(log), "-f", str(folder / "sshd_config")]
        self._process = subprocess.Popen(command)
        try:
            until(lambda: "listening" in (log.read_text() if log.exists() else ""), "sshd listens")
        except AssertionError:
            self.close()
            pytest.skip(f"sshd does not start: {log.read_text()}")

    @property
    def address(self) -> str:
        """For DOCKER_HOST."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Ends every session; new ones are served."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGTERM)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if importlib.util.find_spec("paramiko") is None:
        pytest.skip("docker-py needs paramiko for ssh: pip install 'docker[ssh]'")
    path = os.environ.get("PATH", os.defpath)
    for program in ("sshd", "ssh-keygen", "docker"):
        if shutil.which(program, path=f"{path}:/usr/sbin") is None:
            pytest.skip(f"{program} is not installed (apt-get install openssh-server docker.io)")
    server = SshServer(tmp_path_factory.mktemp("ssh"))
    yield server
    server.close()


@pytest.fixture(params=["tcp", "ssh"])
def remote(request, engine, monkeypatch) -> Iterator[EngineProxy | SshServer]:
    """DOCKER_HOST names a way to the engine that shows nothing of this machine; nothing may be left in the end."""
    if request.param == "tcp":
        with nothing_left(engine), EngineProxy() as proxy:
            monkeypatch.setenv("DOCKER_HOST", proxy.address)
            yield proxy
        return
    server = request.getfixturevalue("ssh_server")
    monkeypatch.setenv("HOME", str(server.home))
    with nothing_left(engine):
        monkeypatch.setenv("DOCKER_HOST", server.address)
        yield server


def evaluator_with(on_phase: Callable[[str], None] | None = None) -> Evaluator:
    return Evaluator(protocol=quick_protocol(), device="cpu", sandbox="docker", on_phase=on_phase)


def test_jobs_are_credited_in_a_container_of_ours_while_the_engines_device_is_held(remote, engine):
    held = []
    with evaluator_with(lambda phase: held.append(not locks_are_free())) as evaluator:
        for _ in range(2):
            assert evaluator.evaluate(RELU, HONEST).credited
            assert locks_are_free()
        (container,) = containers_of(engine)
        assert engine.containers.get(container).labels[LABEL] == docker_module.owner_label()
    assert held
    assert all(held)
    assert containers_of(engine) == []


def test_no_folder_and_no_device_of_this_machine_is_used(remote, engine):
    with evaluator_with() as evaluator:
        assert evaluator.evaluate(RELU, HONEST).credited
        (container,) = containers_of(engine)
        facts = engine.containers.get(container).attrs
    assert not facts["HostConfig"]["Binds"]
    assert not facts["HostConfig"].get("Mounts")
    assert not facts["HostConfig"]["Devices"]
    assert not facts["HostConfig"]["VolumesFrom"]
    assert facts["Mounts"] == []


def test_an_engine_elsewhere_is_not_asked_for_device_files_of_this_machine(remote):
    client = connect()
    facts = facts_of(client)
    client.close()
    assert not facts.is_local
    assert "devices" not in facts.gpu_access


def test_a_source_of_the_largest_size_travels(remote):
    source = HONEST + "#" * (MAX_SOURCE_BYTES - len(HONEST))
    with evaluator_with() as evaluator:
        verdict = evaluator.evaluate(RELU, source)
    assert verdict.credited, verdict.message
    assert verdict.submission.source_bytes == MAX_SOURCE_BYTES


def test_a_connection_that_is_lost_in_the_middle_of_a_job_costs_a_try(remote, engine):
    tries = []

    def lose(phase: str) -> None:
        tries.append(phase == "reference")
        if phase == "standard" and sum(tries) == 1:
            remote.cut()

    with evaluator_with(lose) as evaluator:
        verdict = evaluator.evaluate(RELU, HONEST)
    assert verdict.credited, verdict.message
    assert sum(tries) == 2


def test_a_container_ends_with_the_killed_process_that_owns_it(remote, engine):
    command = [sys.executable, "-m", "tests.docker.judging", "docker", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        process.stdout.readline()  # its first phase
        assert len(containers_of(engine, owner)) == 1
        process.kill()
    until(lambda: containers_of(engine, owner) == [], "it is gone")


def test_a_server_that_is_not_known_is_refused_and_the_error_says_so(ssh_server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", ssh_server.address)
    with pytest.raises(EngineError, match=r"ssh://.* \(Server '\[127\.0\.0\.1\]:\d+' not found in known_hosts\)"):
        connect(5.0)


def test_an_engine_that_is_not_there_is_named_with_the_reason(monkeypatch):
    with EngineProxy() as proxy:
        address = proxy.address
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineError, match=rf"no Docker engine answers at {address} \(Connection refused\)"):
        connect(5.0)
