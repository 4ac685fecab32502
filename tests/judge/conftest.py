"""Warm evaluators for the tests of this folder, and the skipping of those that need a GPU."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from kbenv.corpus import Case
from tests.judge.evaluators import get_evaluator

__all__ = ["get_evaluator"]


ONE_IN, PARTS = 10, 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_most_of_the_corpora(items)
    gpu_items = [
        item for item in items if item.get_closest_marker("gpu") and Path(__file__).parent in item.path.parents
    ]
    if not gpu_items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _mark_most_of_the_corpora(items: list[pytest.Item]) -> None:
    """One file in ten, always the same, is judged by every run of the tests; the others bear the marker `corpus`.

    A marker of their part of the corpora, too: `corpus_1` to `corpus_3`.
    """
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if not isinstance(case, Case) or item.get_closest_marker("gpu"):
            continue
        number = crc32(case.name.encode())
        if number % ONE_IN:
            item.add_marker(pytest.mark.corpus)
            item.add_marker(getattr(pytest.mark, f"corpus_{1 + number // ONE_IN % PARTS}"))
