"""The script that holds the judge's hidden inputs against KernelBench-Verified's sees a difference in any of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kbenv.problems import load_problem

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x, index, y):
        return x


def get_inputs():
    return [torch.rand(1 << 30, 7), torch.randint(0, 9, (3,)), 0.5]


def get_init_inputs():
    return []
"""
HIDDEN = '''\
"""
Filtered (reference model produced error):
  D3 (x0.01 near-zero): reference output contains NaN/Inf
"""
import torch


def get_hidden_inputs():
    configs = [_get_inputs()]
    for factor in (3.0, -1.0):
        drawn = _get_inputs()
        floating = [isinstance(t, torch.Tensor) and t.is_floating_point() for t in drawn]
        configs.append([t * factor if f else t for t, f in zip(drawn, floating)])
    return configs
'''


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        import hidden_inputs
    finally:
        sys.path.remove(str(FOLDER))
    module: ModuleType = hidden_inputs
    return module


@pytest.mark.parametrize(
    ("old", "new", "name", "words"),
    [
        ("", "", "D2", "equal"),
        ("", "", "D3", "left out by the set"),
        ("3.0", "3.5", "D2", "other values"),
        ("else t for", "else -1 for", "D4", "other values"),  # integers are not scaled
        ("t * factor if", "(t * factor).double() if", "D2", "other values"),
        ("    return configs", "    return [*configs, _get_inputs()]", "D5", "the set's alone"),
        ("    return configs", "    return configs[:2]", "D4", "kbenv's alone"),
    ],
)
def test_a_difference_is_seen_and_named(
    script: ModuleType, tmp_path: Path, old: str, new: str, name: str, words: str
) -> None:
    path = tmp_path / "a.py"
    path.write_text(PROBLEM)
    outcomes = script.compare_apart(load_problem(str(path)), HIDDEN.replace(old, new) if old else HIDDEN)
    assert outcomes[name] == words, outcomes
