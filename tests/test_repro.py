"""The script that `kbenv repro` writes: it runs with PyTorch alone, and shows what the verdict says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.cli import main
from kbenv.errors import UsageError
from kbenv.problems import load_problem
from kbenv.problems.problem import Contract
from kbenv.protocol import get_protocol
from kbenv.repro import _literal, render_script
from kbenv.store import StoredTurn
from kbenv.verdict import Stage, Status, SubmissionFacts, Verdict
from tests.fakes import make_checks, make_problem, make_verdict

IDENTITY = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
RIGHT = IDENTITY.replace("return x", 'return x.clamp(min=0)  # it\'s \'right\' \\\\ and """so"""')
END = "# end"
SEEDS: dict[str, Any] = {
    "construction": 42, "redraw": 1, "standard": [11, 12, 13, 14, 15], "hidden": [21, 22, 23, 24], "probes": [],
    "transform": 3, "timed_base": 4,
}  # fmt: skip


def make(status: Status, source: str, **changes: Any) -> Verdict:
    facts = SubmissionFacts(
        sha256=hashlib.sha256(source.encode()).hexdigest(), source_bytes=len(source), backend="python"
    )
    return make_verdict(status, submission=facts, **({"seeds": SEEDS} | changes))


def run_script(script: str, folder: Path) -> str:
    """What it prints, with nothing of kbenv at hand."""
    path = folder / "repro.py"
    path.write_text(script, encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([sys.executable, path], cwd=folder, env=clean, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_evaluation_mode_is_repeated() -> None:
    for mode in ("train", "eval"):
        problem = make_problem(contract=Contract(mode=mode))
        script = render_script(make(Status.WRONG_VALUE, IDENTITY), problem, IDENTITY)
        assert (".eval()" in script) is (mode == "eval")


@pytest.mark.slow
def test_a_hidden_failure_shows_where_the_outputs_differ(tmp_path: Path) -> None:
    script = render_script(make(Status.WRONG_HIDDEN, IDENTITY), make_problem(), IDENTITY)
    assert "import kbenv" not in script
    said = run_script(script, tmp_path)
    assert "WRONG on these inputs" in said
    assert "first at (0, 0): expected 0, found -0." in said  # D4: the inputs times -1
    assert "of 8192 elements differ" in said


@pytest.mark.slow
def test_a_credited_verdict_shows_that_it_is_right_and_how_fast(tmp_path: Path) -> None:
    said = run_script(render_script(make(Status.PASSED, RIGHT), make_problem(), RIGHT), tmp_path)
    assert "\nright on these inputs" in said
    assert "x with launch overhead" in said
    assert "kbenv measured 2x [1.9, 2.1]" in said


def test_the_inputs_are_those_of_the_check_that_failed() -> None:
    hidden = render_script(make(Status.WRONG_HIDDEN, IDENTITY), make_problem(), IDENTITY)
    assert "INPUT_SEED = 24\nFACTOR = -1.0" in hidden
    standard = render_script(make(Status.WRONG_VALUE, IDENTITY), make_problem(), IDENTITY)
    assert "INPUT_SEED = 12\nFACTOR = 1.0" in standard
    building = make(Status.COMPILE_ERROR, IDENTITY)
    assert "how building fails" in render_script(building, make_problem(), IDENTITY)
    upstream = make(Status.WRONG_VALUE, IDENTITY, protocol=get_protocol("kernelbench", "bf16"))
    script = render_script(upstream, make_problem(), IDENTITY)
    assert "torch.bfloat16" in script
    assert "ABSOLUTE, RELATIVE = 0.01, 0.01" in script
    assert "'reference': (False, True)" in script


def test_a_message_cannot_leave_the_docstring() -> None:
    nasty = make(Status.WRONG_HIDDEN, IDENTITY, message='"""\nimport os\nos.abort()\n"""\\')
    compile(render_script(nasty, make_problem(), IDENTITY), "repro.py", "exec")
    assert "\nimport os\nos.abort" not in render_script(nasty, make_problem(), IDENTITY)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_source_is_embedded_as_it_is(source: str) -> None:
    script = f"embedded = {_literal(source + END)}\n".encode()
    found: dict[str, str] = {}
    exec(compile(script, "repro.py", "exec"), found)
    assert found["embedded"] == source + END


def test_what_cannot_be_shown_is_refused_with_the_reason() -> None:
    probe = [
        *make_checks(Status.WRONG_HIDDEN, Stage.HIDDEN)[:-1],
        make_checks(Status.WRONG_HIDDEN, Stage.HIDDEN)[-1].model_copy(update={"name": "hidden-rows"}),
    ]
    with pytest.raises(UsageError, match="kbenv eval --replay"):
        render_script(make(Status.WRONG_HIDDEN, IDENTITY, checks=tuple(probe)), make_problem(), IDENTITY)
    with pytest.raises(UsageError, match="held no code"):
        render_script(make(Status.FORMAT_ERROR, ""), make_problem(), "")
    with pytest.raises(UsageError, match="give the source that was judged"):
        render_script(make(Status.WRONG_VALUE, IDENTITY), make_problem(), RIGHT)
    with pytest.raises(UsageError, match="does not record every seed"):
        render_script(make(Status.LOAD_ERROR, IDENTITY, seeds={}), make_problem(), IDENTITY)
    with pytest.raises(UsageError, match="is on core/level1/relu"):
        render_script(make(Status.WRONG_VALUE, IDENTITY), make_problem(id="other"), IDENTITY)


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_turn_of_a_run_holds_all_that_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turn = StoredTurn(
        problem="core/level1/relu", sample=0, index=0, model="m", observation="o", answer="a", code=IDENTITY,
        prompt_tokens=None, completion_tokens=None, cost_usd=None, finish_reason=None, judged=True,
        verdict=make(Status.WRONG_HIDDEN, IDENTITY),
    )  # fmt: skip
    (tmp_path / "turn-000.json").write_text(turn.model_dump_json())
    assert main(["repro", str(tmp_path / "turn-000.json")]) == 0
    script = capsys.readouterr().out
    assert script == render_script(turn.verdict, load_problem("core/level1/relu"), IDENTITY)  # type: ignore[arg-type]
    compile(script, "repro.py", "exec")


def test_a_verdict_needs_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps(make(Status.WRONG_HIDDEN, IDENTITY).model_dump(mode="json")))
    assert main(["repro", str(path)]) == 2
    assert "name it with --source" in capsys.readouterr().err
    (tmp_path / "kernel.py").write_text(IDENTITY)
    (tmp_path / "answer.md").write_text(f"Here:\n\n```python\n{IDENTITY}```\n")
    for name in ("kernel.py", "answer.md"):
        out = tmp_path / f"{name}.repro.py"
        assert main(["repro", str(path), "--source", str(tmp_path / name), "--out", str(out)]) == 0
        assert "INPUT_SEED = 24" in out.read_text()


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[]", '"text"', "5"])
def test_what_is_no_verdict_is_bad_usage(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.json").write_text(content)
    assert main(["repro", str(tmp_path / "v.json")]) == 2
    assert "is neither" in capsys.readouterr().err
