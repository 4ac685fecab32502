"""The corpora of submissions under tests/, for the tests that judge them."""

from __future__ import annotations

import pytest

from kbenv.corpus import TESTS, Case, load_case, load_cases

__all__ = ["SANDBOXES", "TESTS", "Case", "load_case", "load_cases", "name_of"]

SANDBOXES = ("process", pytest.param("docker", marks=pytest.mark.docker))
"""For tests that hold in every sandbox."""


def name_of(case: Case) -> str:
    """For test ids."""
    return case.name
