"""The comparison with upstream covers the levels and forms that it says, with submissions that are what they claim."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from benchmarks.side_by_side import (
    DRAW,
    EXTENSION,
    FORMS,
    LEVEL1_19,
    PYTHON,
    TRITON,
    TYPES,
    Measurements,
    render,
    submission,
)
from kbenv.problems.excluded import EXCLUDED
from kbenv.provenance import custom_kernel_evidence, detect_backend
from tests.fakes import make_problem

PROBLEM = make_problem()


def test_the_draw_is_stratified_and_has_every_form_several_times():
    names = {name for name, _ in DRAW}
    assert len(names) >= 12
    assert Counter(name.split("/")[1] for name in names) == {"level1": 6, "level2": 4, "level3": 2}
    assert not names & set(EXCLUDED)
    counts = Counter(form for _, form in DRAW)
    assert set(counts) == set(FORMS)
    assert min(counts.values()) >= 3
    assert {form for name, form in DRAW if name == LEVEL1_19} == {EXTENSION, PYTHON}


@pytest.mark.parametrize(
    ("form", "backend"), [(EXTENSION, "cuda"), (TYPES, "cuda"), (TRITON, "triton"), (PYTHON, None)]
)
def test_a_submission_is_written_in_its_form(form, backend):
    source = submission(PROBLEM, form)
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert classes[-2:] == ["Reference", "ModelNew"]
    assert ("torch/extension.h" in source) is (form == EXTENSION)
    assert bool(custom_kernel_evidence(source)) is (backend is not None)
    assert backend is None or detect_backend(source) == backend


@pytest.mark.parametrize("form", [EXTENSION, TYPES, TRITON])
def test_changed_device_code_is_another_source(form):
    changed, source = submission(PROBLEM, form, changed=True), submission(PROBLEM, form)
    assert changed != source
    assert len(changed) == pytest.approx(len(source), abs=16)


def test_what_was_measured_is_not_measured_again(tmp_path):
    path = tmp_path / "runs" / "a.jsonl"
    Measurements(path).take("kbenv a Python", lambda: {"cold": 2.0})
    again = Measurements(path)
    assert again.records == {"kbenv a Python": {"what": "kbenv a Python", "cold": 2.0}}
    assert json.loads(path.read_text())["cold"] == 2.0


def test_the_table_shows_both_sides_and_how_many_times_as_long_upstream_takes():
    records = {
        "kbenv a Python": {"cold": 2.0, "again": 1.0, "quick": 0.5, "cold status": "PASSED", "again status": "PASSED"},
        "upstream a Python": {"seconds": 30.0, "status": "correct"},
        "kbenv b Python": {"cold": 3.0},
        "spread a": {"speedups": [[0.9, 1.0, 1.1], [1.015, 1.02, 1.1]], "reference ms": 1.5},
        "do_bench a": {"ms": 2.0},
    }
    text = render(records, [("a", PYTHON), ("b", PYTHON)])
    assert "| a | Python | 30 | 2 | 1 |  | 0.5 | 15.0 | 30.0 |  | PASSED; correct |" in text
    assert "| b | Python |  | 3 |" in text
    assert "| **all Python** (1) |  | 30 | 2 | 1 |  | 0.5 | 15.0 | 30.0 |  |  |" in text  # what both have measured
    assert "max/min 1.0200; the median of all lies in 1 intervals" in text
