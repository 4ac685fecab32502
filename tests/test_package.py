"""What is installed is whole: wheels hold the templates, the problems and the sandbox, and run without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
TRY = """
import sys
from pathlib import Path
import kbenv
from kbenv.agents.skills.library import FOLDER, KERNELS
from kbenv.prompts import render
from kbenv.sandbox import process
home = Path(kbenv.__file__).parent
assert home.parent == Path(sys.argv[1]), home
assert len(kbenv.list_problems("core/*")) >= 90
assert kbenv.load_problem("core/level1/relu").sizes
assert process._BOOT.is_file() and home in process._BOOT.parents, process._BOOT
assert render("system.j2", turns=1)
assert len(list(KERNELS.glob("*.py"))) > 40 and len(list(FOLDER.glob("*.yaml"))) == 7
from kbenv.prompt import PromptOptions, render_prompt
from kbenv.protocol import get_protocol
relu = kbenv.load_problem("core/level1/relu")
assert "## Examples" in render_prompt(relu, get_protocol(), "cpu", options=PromptOptions(shots="few"))
print("whole")
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    """The output of a Python command without the user's own settings for Python."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=clean | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what packaging reads, links kept."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("agents", "kbenv", "problems", "prompts", "sandbox"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module", params=["checkout", "sdist"])
def wheel(request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built offline from a checkout, or from the source distribution made of it."""
    out, source = tmp_path_factory.mktemp("built"), checkout
    if request.param == "sdist":
        archive = out / run("-c", BUILD, "build_sdist", str(out), cwd=checkout).split()[-1]
        with tarfile.open(archive) as file:
            file.extractall(out, filter="data")
        source = out / archive.name.removesuffix(".tar.gz")
    return out / run("-c", BUILD, "build_wheel", str(out), cwd=source).split()[-1]


@pytest.mark.slow
def test_a_wheel_holds_code_and_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path.relative_to(ROOT) for path in (ROOT / "problems").glob("core/level*/*.py")}
    wanted |= {path.relative_to(ROOT) for path in (ROOT / "prompts").rglob("*.j2")}
    wanted.add(Path("problems/loaders/hub.json"))
    for folder in ("agents", "problems", "prompts", "sandbox"):
        wanted |= {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")}
    assert len(wanted) > 30
    assert {f"kbenv/{path}" for path in wanted} <= names
    assert {"kbenv/sandbox/boot.py", "kbenv/cli/run.py", "kbenv/py.typed"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kbenv"}
    assert not {name for name in names if "tests" in name.split("/") or "__pycache__" in name}


@pytest.mark.slow
def test_a_wheel_runs_without_the_checkout(wheel, tmp_path):
    target = tmp_path / "target"
    zipfile.ZipFile(wheel).extractall(target)
    assert run("-c", TRY, str(target), cwd=tmp_path, PYTHONPATH=str(target)) == "whole\n"
    listed = run("-m", "kbenv", "problems", "list", cwd=tmp_path, PYTHONPATH=str(target))
    assert "core/level1/matmul" in listed


def test_an_environment_can_be_made_without_importing_kbenv_first(tmp_path):
    code = (
        "import sys, gymnasium\n"
        "env = gymnasium.make('kbenv:kbenv/SingleTurn-v0', problem='core/level1/relu', device='cpu')\n"
        "prompt, info = env.reset()\n"
        "assert 'ModelNew' in prompt\n"
        "env.close()\n"
        "print(env.spec.id)\n"
    )
    assert run("-c", code, cwd=tmp_path) == "kbenv/SingleTurn-v0\n"


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["run", "--help"]])
def test_the_command_line_answers_without_loading_torch(command, tmp_path):
    code = (
        "import sys\n"
        "from kbenv.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    assert 'torch' not in sys.modules\n"
    )
    assert "kbenv" in run("-c", code, *command, cwd=tmp_path)
