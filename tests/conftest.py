"""Tests that need a CUDA device, or a Docker engine with our image, are skipped where there is none, and say why."""

from __future__ import annotations

import os

import pytest

from kbenv.sandbox.engine import IMAGE, EngineError, connect, find_image


def pytest_configure() -> None:
    """One thread for PyTorch in the tests' own process, as in the judge's.

    OpenMP's threads wait for each other at every operation: beside a judge on two cores, small ones took ten times as
    long.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch, imported later, reads it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    docker_items = [item for item in items if item.get_closest_marker("docker")]
    if docker_items and (reason := _missing()):
        for item in docker_items:
            item.add_marker(pytest.mark.skip(reason=reason))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_cuda():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _missing() -> str | None:
    """What `docker` tests lack here, None when nothing."""
    if reason := os.environ.get("KBENV_NO_ENGINE"):
        return reason
    try:
        found = find_image(connect(5.0))
    except EngineError as e:
        return str(e)
    return None if found else f"the engine has no image {IMAGE}: run `kbenv sandbox build`"
