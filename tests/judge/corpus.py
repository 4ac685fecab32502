"""The corpora of submissions under tests/, for the tests that judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

import pytest

from kbenv.corpus import SPEEDUP_AT_LEAST, TESTS, Case, load_case, load_cases
from kbenv.problems import load_problem
from kbenv.problems.problem import Problem

__all__ = [
    "SANDBOXES", "TESTS", "Case", "as_parameters", "at_small_sizes", "in_every_run", "load_case",
    "load_cases", "marks_of", "name_of", "small",
]  # fmt: skip

SANDBOXES = ("process", pytest.param("docker", marks=pytest.mark.docker))
"""For tests that hold in every sandbox."""
ONE_IN, PARTS = 10, 3
SMALL_SIZES: dict[str, dict[str, int]] = {
    "core/level1/layer_norm": {"ROWS": 64},
    "core/level1/matmul": {"M": 128, "K": 256, "N": 192},
    "core/level1/relu": {"ROWS": 64, "COLUMNS": 512},
    "core/level1/softmax": {"ROWS": 512},
    "core/level2/conv_bias_relu": {"BATCH": 2, "CHANNELS_IN": 8, "CHANNELS_OUT": 16, "HEIGHT": 32, "WIDTH": 32},
    "core/level2/residual_rms_norm": {"ROWS": 64},
    "core/level3/mlp_block": {"TOKENS": 64, "WIDTH": 64, "HIDDEN": 256},
}
"""On the CPU: a verdict takes a second or two, not five to fifty."""
LONG = ("t12_poll_input_slots", "torch_compile")
"""Slow whatever the size: left to `make test-corpora`, where others like them are judged in every run."""


def small(problem: str) -> Problem:
    """A problem of the core set at small sizes on the CPU, for what is no matter of size."""
    given = load_problem(problem)
    return replace(given, sizes={**given.sizes, "cpu": {**given.sizes["cpu"], **SMALL_SIZES[problem]}})


def at_small_sizes(case: Case) -> Case:
    """The same submission, on its problem at small sizes where it has them; what speed it claims is of the others."""
    if case.problem not in SMALL_SIZES:
        return case
    constants = {name: value for name, value in case.constants.items() if name != SPEEDUP_AT_LEAST}
    return replace(case, problem=small(case.problem), constants=constants)


def in_every_run(case: Case) -> bool:
    """Whether it is the one file in ten, always the same, that every run of the tests judges."""
    return crc32(case.name.encode()) % ONE_IN == 0


def marks_of(case: Case) -> list[pytest.MarkDecorator]:
    """Of a case that is left to `make test-corpora`: `corpus`, and its part."""
    part = 1 + crc32(case.name.encode()) // ONE_IN % PARTS
    return [pytest.mark.corpus, getattr(pytest.mark, f"corpus_{part}")]


def as_parameters(cases: Sequence[Case], device: str = "cpu") -> list:
    """For `parametrize`: what every run judges is judged at small sizes, and at its problem's own with the corpora.

    On a GPU there is one size.
    """
    parameters = []
    for case in cases:
        marks = [pytest.mark.slow] if case.constants.get("SLOW") else []
        if case.lacking is not None:
            marks.append(pytest.mark.skip(reason=f"needs {case.lacking}"))
        long = device == "cpu" and case.name in LONG
        has_smaller = device == "cpu" and in_every_run(case) and case.problem in SMALL_SIZES and not long
        if has_smaller:
            parameters.append(pytest.param(at_small_sizes(case), id=f"{name_of(case)}-small", marks=marks))
        if has_smaller or long:
            marks = [*marks, *marks_of(case)]
        parameters.append(pytest.param(case, id=name_of(case), marks=marks))
    return parameters


def name_of(case: Case) -> str:
    """For test ids."""
    return case.name
