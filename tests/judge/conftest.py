"""Warm evaluators for the tests of this folder, and which files of the corpora every run of the tests judges."""

from __future__ import annotations

import pytest

from kbenv.corpus import Case
from tests.judge.corpus import in_every_run, marks_of
from tests.judge.evaluators import get_evaluator

__all__ = ["get_evaluator"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file in ten, always the same, is judged by every run of the tests; the others bear the marker `corpus`.

    A marker of their part of the corpora, too: `corpus_1` to `corpus_3`.
    """
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if not isinstance(case, Case) or item.get_closest_marker("gpu"):
            continue
        if not in_every_run(case):
            for mark in marks_of(case):
                item.add_marker(mark)
