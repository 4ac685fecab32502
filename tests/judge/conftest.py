"""Warm evaluators for the tests of this folder, and the skipping of those that need a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge.evaluators import get_evaluator

__all__ = ["get_evaluator"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [
        item for item in items if item.get_closest_marker("gpu") and Path(__file__).parent in item.path.parents
    ]
    if not gpu_items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
