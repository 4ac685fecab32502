"""A run as large as an evaluation of five models: begun, stopped in the middle, and gone on with."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli import EXIT_INTERRUPTED, main, run
from kbenv.cli.agents import OpenedModel
from kbenv.protocol import get_protocol
from kbenv.store import read_turns
from kbenv.verdict import Verdict
from tests.fakes import RELU_SOURCE, ScriptedEvaluator
from tests.models import ScriptedModel, make_answer

MODELS, SAMPLES = ("one", "two", "three", "four", "five"), 5
LEVELS = {1: 100, 2: 100, 3: 50}
UNDER_WAY = 8
"""Answers that may be there, and not kept yet, when the signal comes."""
ANSWERS = len(MODELS) * SAMPLES * sum(LEVELS.values())


class Judge(ScriptedEvaluator):
    """Stopped by a Ctrl-C after so many verdicts."""

    def __init__(self, stop_after: int) -> None:
        super().__init__(protocol=get_protocol("kernelbench"))
        self._left = stop_after

    def evaluate(self, *arguments: Any, **options: Any) -> Verdict:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().evaluate(*arguments, **options)


@pytest.mark.corpus
@pytest.mark.corpus_3
def test_6250_answers_are_begun_stopped_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level, count in LEVELS.items():
        folder = tmp_path / "checkout" / f"level{level}"
        folder.mkdir(parents=True)
        for number in range(1, count + 1):
            (folder / f"{number}_problem.py").write_text(RELU_SOURCE)
    monkeypatch.setenv("KBENV_KERNELBENCH", str(tmp_path / "checkout"))
    numbers = itertools.count()
    model = ScriptedModel([lambda messages: make_answer(next(numbers))])
    monkeypatch.setattr(run, "open_model", lambda _, name, problems, __: OpenedModel(name, problems, lambda ___: model))
    call = [
        "run",
        "--protocol",
        "kernelbench",
        "--problems",
        "kernelbench/*",
        "-n",
        str(SAMPLES),
        "--out",
        str(tmp_path / "run"),
    ]
    call += [part for name in MODELS for part in ("--model", name)]

    def judge_until(stop_after: int) -> tuple[int, Judge]:
        judge = Judge(stop_after)

        def make(**given: Any) -> Judge:
            judge.on_phase = given["on_phase"]
            return judge

        monkeypatch.setattr("kbenv.evaluator.Evaluator", make)
        return main(call), judge

    code, first = judge_until(2000)
    assert code == EXIT_INTERRUPTED
    code, second = judge_until(ANSWERS)
    assert code == 0
    again = len(first.sources) + len(second.sources) - ANSWERS
    assert 0 <= again <= UNDER_WAY
    folders = [path.parent for path in (tmp_path / "run").rglob("run.json")]
    assert sum(1 for folder in folders for _ in read_turns(folder)) == ANSWERS
