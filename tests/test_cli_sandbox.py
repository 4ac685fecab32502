"""`kbenv sandbox` without an engine, or with a scripted one; building for real is in tests/docker/test_image.py."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbenv.cli import main
from kbenv.errors import SandboxError
from kbenv.sandbox import image
from kbenv.sandbox.engine import EngineError
from kbenv.sandbox.image import HEADING


class ScriptedEngine:
    """Has no image, and answers a pull and a build with the given messages."""

    def __init__(self, *messages: dict[str, Any] | Exception) -> None:
        self.messages = messages
        self.images = SimpleNamespace(get=self._get)
        self.api = SimpleNamespace(build=self._say, pull=self._say)

    def _get(self, name: str) -> None:
        from docker.errors import ImageNotFound

        raise ImageNotFound(f"no {name}")

    def _say(self, *arguments: object, **options: object) -> Iterator[dict[str, Any]]:
        for message in self.messages:
            if isinstance(message, Exception):
                raise message
            yield message


@pytest.fixture
def dead_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A socket that nobody listens at any more."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return f"unix://{path}"


def the_error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("kbenv: ")
    return line


@pytest.mark.parametrize("command", [["build"], ["build", "--base", "x", "--tag", "y"], ["clean"], ["clean", "--all"]])
def test_no_engine_is_one_line_that_names_the_address(
    command: list[str], dead_engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", *command]) == 2
    assert dead_engine in the_error(capsys)


def test_an_engine_that_hangs_up_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up() -> None:
            try:
                while True:
                    listener.accept()[0].close()
            except OSError:
                pass

        threading.Thread(target=hang_up, daemon=True).start()
        assert main(["sandbox", "build"]) == 2
        listener.shutdown(socket.SHUT_RDWR)
    assert "no Docker engine answers" in the_error(capsys)


@pytest.mark.parametrize("command", [[], ["bake"], ["build", "extra"], ["clean", "--base", "x"]])
def test_bad_usage_is_code_two(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["sandbox", *command])
    assert exit_.value.code == 2


def test_help_needs_no_docker_py() -> None:
    code = (
        "import sys; sys.modules['docker'] = None\n"
        "from kbenv.cli import main\n"
        "try: main(['sandbox', 'build', '--help'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--base IMAGE" in done.stdout


def test_the_default_base_has_cuda_where_the_engine_gives_a_gpu() -> None:
    cpu: Any = SimpleNamespace(gpu_access=())
    gpu: Any = SimpleNamespace(gpu_access=("nvidia",))
    assert image.default_base(cpu) == "python:3.11-slim"
    assert re.fullmatch(r"pytorch/pytorch:[\d.]+-cuda[\d.]+-cudnn\d+-devel", image.default_base(gpu))


def test_a_base_that_cannot_be_pulled_is_named_with_what_to_do() -> None:
    engine: Any = ScriptedEngine({"error": "manifest unknown"})
    with pytest.raises(EngineError, match=r"no image nosuch:1 and cannot pull it \(manifest unknown\).*--base"):
        image.build(engine, "nosuch:1")


def test_a_pull_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_PULL_INTERVAL_S", -1.0)
    engine: Any = ScriptedEngine(
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 5_000_000, "total": 10_000_000}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 1_000_000, "total": 90_000_000}},
        {"status": "Download complete", "id": "a", "progressDetail": {}},
        {"status": "Extracting", "id": "b", "progressDetail": {"current": 1, "total": 90_000_000}},
        {"status": "Extracting", "id": "b", "progressDetail": {"current": 2, "total": 90_000_000}},
    )
    said: list[str] = []
    image._pull(engine, "x:1", said.append)
    amounts = ["", ": 5 of 10 MB", ": 6 of 100 MB", ": 11 of 100 MB"]
    assert said == [f"{HEADING}pulling x:1{amount}" for amount in amounts] + [f"{HEADING}unpacking x:1"]


def test_a_failed_step_is_reported_with_its_last_lines() -> None:
    engine: Any = ScriptedEngine(
        {"stream": "Step 1/2 : RUN long command\n"},
        {"stream": "== installing g++ (apt)\nE: Unable to"},
        {"stream": " locate\x1b[0m package g++\n"},
        {"error": "The command '/bin/sh -c ...' returned a non-zero code: 100"},
    )
    said: list[str] = []
    with pytest.raises(SandboxError, match=r"failed at 'installing g\+\+ \(apt\)': E: Unable to locate package g\+\+$"):
        image._run_build(engine, b"", said.append)
    assert said == ["== installing g++ (apt)", "E: Unable to locate package g++"]


def test_what_the_dockerfile_refuses_is_bad_usage() -> None:
    engine: Any = ScriptedEngine({"stream": "== torch\nkbenv: the base has torch 2.8.0\n"}, {"error": "code: 1"})
    with pytest.raises(EngineError, match=r"^the base has torch 2\.8\.0$"):
        image._run_build(engine, b"", lambda line: None)


def test_a_build_that_ends_without_a_result_is_a_fault() -> None:
    engine: Any = ScriptedEngine({"stream": "Step 1/2\n"})
    with pytest.raises(SandboxError, match="without a result"):
        image._run_build(engine, b"", lambda line: None)


def test_an_engine_that_goes_away_in_the_middle_is_a_fault() -> None:
    from urllib3.exceptions import ProtocolError

    engine: Any = ScriptedEngine(ProtocolError("broken"))
    with pytest.raises(OSError, match="stopped answering"):
        image._run_build(engine, b"", lambda line: None)
