"""`kbenv problems`, and the command line's own manners: exit codes, one-line errors, pipes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import kbenv.cli
from kbenv.cli import main
from kbenv.errors import DeviceMemoryError, ModelError, ProblemNotFoundError, SandboxError
from kbenv.problems import list_problems, load_problem

KBENV = [sys.executable, "-c", "import sys; from kbenv.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KBENV_KERNELBENCH", raising=False)


def run_at_terminal(arguments: list[str], columns: int) -> str:
    """What the command prints at a terminal of `columns` columns, without the escapes for bold and colour."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    child = subprocess.Popen([*KBENV, *arguments], stdout=terminal, stdin=terminal, env=environment)
    os.close(terminal)
    output = b""
    while True:
        try:
            chunk = os.read(controller, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(controller)
    assert child.wait() == 0
    return re.sub(r"\x1b\[[\d;]*m", "", output.decode()).replace("\r\n", "\n")


def test_list_prints_an_id_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "list", "core/level1/*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t") for line in lines] == [[p.id, p.name] for p in list_problems("core/level1/*")]


def test_list_is_readable_at_sixty_columns() -> None:
    text = run_at_terminal(["problems", "list"], 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.splitlines()[0].split() == ["ID", "NAME"]
    for problem in list_problems("core/*"):
        assert problem.id in text


def test_list_as_json_holds_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "list", "core/level1/relu", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    problem = load_problem("core/level1/relu")
    assert {name: entry[name] for name in ("id", "name", "level", "sizes", "dropped", "cases", "path")} == {
        "id": "core/level1/relu",
        "name": "relu",
        "level": 1,
        "sizes": problem.sizes,
        "dropped": {},
        "cases": [],
        "path": str(problem.path),
    }
    assert entry["origin"]["licence"] == "MIT"
    assert entry["contract"]["entry"] == "ModelNew"


def test_list_reads_the_checkout_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "19_ReLU.py").write_text(load_problem("core/level1/relu").source)
    assert main(["problems", "list", "kernelbench/*", "--problems-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "kernelbench/level1/19\tReLU\n"
    assert main(["problems", "show", "kernelbench/level1/19", "--problems-dir", str(tmp_path)]) == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_show_prints_the_source_with_the_device_s_sizes(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "show", "core/level1/relu", "--device", device]) == 0
    assert capsys.readouterr().out == load_problem("core/level1/relu").source_for(device)


@pytest.mark.parametrize("verb", ["list", "show"])
@pytest.mark.parametrize("name", ["core/level1/rleu", "./none.py", "kernelbench/level1/19", "/"])
def test_bad_usage_is_one_line_and_exit_code_two(verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", verb, name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kbenv: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["problems"], ["problems", "show", "x", "--device", "tpu"]])
def test_arguments_that_do_not_parse_exit_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("kbenv ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProblemNotFoundError("two\nlines"), 2),
        (SandboxError("two\nlines"), 3),
        (DeviceMemoryError("two\nlines"), 3),
        (ModelError("two\nlines"), 3),
    ],
)
def test_each_fault_has_its_exit_code_and_one_line(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kbenv.cli.problems.find_problems", _raiser(error))
    assert main(["problems", "list"]) == code
    assert capsys.readouterr().err == "kbenv: two lines\n"


def test_an_interrupt_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kbenv.cli.problems.find_problems", _raiser(KeyboardInterrupt()))
    assert main(["problems", "list"]) == kbenv.cli.EXIT_INTERRUPTED == 130
    assert capsys.readouterr().err == "kbenv: interrupted\n"


def test_a_fault_in_kbenv_itself_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kbenv.cli.problems.find_problems", _raiser(AssertionError("a bug")))
    assert main(["problems", "list"]) == kbenv.cli.EXIT_FAULT == 3
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert error.endswith("AssertionError: a bug\n")


def test_a_reader_that_has_gone_is_no_error() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    child = subprocess.run([*KBENV, "problems", "list"], stdout=writable, stderr=subprocess.PIPE, text=True)
    os.close(writable)
    assert child.stderr == ""
    assert child.returncode == kbenv.cli.EXIT_BROKEN_PIPE


def test_a_terminal_without_utf8_still_gets_every_line(tmp_path: Path) -> None:
    source = load_problem("core/level1/relu").source + "# \u2192\n"
    (tmp_path / "p.py").write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    output = subprocess.check_output([*KBENV, "problems", "show", str(tmp_path / "p.py")], env=environment)
    assert output.endswith(b"# \\u2192\n")


def _raiser(error: BaseException) -> object:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
