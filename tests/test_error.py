"""What a runner says of an error is about the submission's source: no runner's frames, no folder, nothing twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kbenv.sandbox.layout import UnsupportedError, flatten_output
from kbenv.sandbox.runner.error import describe_error
from kbenv.sandbox.runner.model import load_module

RAISES = "def wrong():\n    raise ValueError('no')\n\n\nwrong()\n"
WRAPS = """
try:
    {}["key"]
except KeyError as e:
    raise RuntimeError("wrapped") from e
"""


def detail_of(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises((ValueError, RuntimeError, SyntaxError)) as raised:
        load_module("submission", source)
    return str(describe_error(raised.value)["detail"])


@pytest.mark.parametrize("source", [RAISES, WRAPS, "def f(:\n"], ids=["raises", "wraps", "no-python"])
def test_equal_faults_read_the_same_in_every_runner_s_folder(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (detail_of(source, tmp_path / name, monkeypatch) for name in ("one", "two"))
    assert first == second
    assert 'File "submission.py", line' in first
    assert str(tmp_path) not in first
    assert "sandbox/runner" not in first


def test_the_whole_chain_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detail = detail_of(WRAPS, tmp_path / "one", monkeypatch)
    assert detail.index("KeyError: 'key'") < detail.index("direct cause") < detail.index("RuntimeError: wrapped")


def test_frames_of_the_sandbox_outside_of_the_runner_are_not_told_either() -> None:
    with pytest.raises(UnsupportedError) as raised:
        flatten_output({1, 2}, "cpu")
    detail = describe_error(raised.value)["detail"]
    assert "layout.py" not in detail
    assert "a value of type set cannot be passed" in detail


def test_a_syntax_error_may_say_that_it_is_in_anything() -> None:
    error = SyntaxError("no")
    error.filename = 5  # type: ignore[assignment]
    assert describe_error(error)["kind"] == "load"


def test_what_a_compiler_said_is_told_once() -> None:
    said = "main.cpp:4:1: error: no such thing"
    try:
        try:
            raise subprocess.CalledProcessError(1, ["ninja", "-v"], output=said.encode())
        except subprocess.CalledProcessError as e:
            raise RuntimeError(f"Error building extension 'x': {said}") from e
    except RuntimeError as error:
        repeated = describe_error(error)
    assert repeated["kind"] == "compile"
    assert repeated["detail"].count(said) == 1
    alone = describe_error(subprocess.CalledProcessError(1, ["nvcc", "x.cu"], stderr=said.encode()))
    assert alone["detail"].count(said) == 1


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_memory_that_a_library_lacks_is_memory(words: str) -> None:
    assert describe_error(RuntimeError(words))["kind"] == "memory"
    assert not describe_error(RuntimeError(words))["fatal"]
