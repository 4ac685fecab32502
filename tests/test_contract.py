"""Nothing in a problem's contract is decoration: whatever a set declares, somebody acts on it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from kbenv.cli.problems import _describe, _references
from kbenv.problems.problem import Case, Comparator, Contract, Origin, Problem
from kbenv.prompt import render_prompt
from kbenv.protocol import get_protocol
from kbenv.sandbox.job import Job
from tests.fakes import make_problem
from tests.test_evaluator import make_evaluator

FOREIGN = "def run(x):\n    return x\n"
KERNEL = (
    "from torch.utils.cpp_extension import load_inline\n\nmodule = load_inline(name='a', cuda_sources=['__global__'])\n"
)
DECLARED: dict[str, Any] = {
    "reference": "backward", "mode": "eval", "dtype": "bf16", "comparator": Comparator("distribution"),
    "in_place": (0,), "processes": 2, "entry": "run", "adapter": "class ModelNew: ...",
    "backends": ("triton",), "requires": ("einops",),
    "unsupported": "it wants a printer",
}  # fmt: skip


def consequences(problem: Problem) -> tuple[object, ...]:
    """What a judge, a model, an evaluator and a reader are told of a problem."""
    protocol = get_protocol("verified")
    counted = make_evaluator()[0]._facts(problem, KERNEL)
    return (
        Job(problem, "", protocol, "cpu", None).to_message(), problem.why_unjudged("fp32"), problem.own_precision,
        problem.complete(FOREIGN), render_prompt(problem, protocol, "cuda"), counted, _references([problem]),
    )  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(Contract)])
def test_every_field_of_a_contract_has_a_consequence(name: str) -> None:
    adapted = Contract(entry="other", adapter="class ModelNew: ...") if name == "entry" else Contract(entry="run")
    before = make_problem(contract=adapted)
    after = replace(before, contract=replace(adapted, **{name: DECLARED[name]}))
    assert consequences(before) == consequences(before)
    assert consequences(before) != consequences(after)


CHANGED: dict[str, Any] = {
    "id": "other", "name": "other", "level": 3, "source": FOREIGN, "sizes": {"cpu": {"ROWS": 3}},
    "dropped": {"D2": "a"}, "path": Path("a.py"), "origin": Origin("core", "https://example.org", "MIT"),
    "same_as": "kernelbench/level2/23",
    "category": "attention", "tags": ("a",), "contract": Contract(dtype="bf16"), "cases": (Case("a", "perf", {}),),
    "case": "b", "view": "blind", "shown": FOREIGN, "hints": {"flops": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(Problem)])
def test_every_field_of_a_problem_is_told_or_has_a_consequence(name: str) -> None:
    before = make_problem(cases=(Case("a", "perf", {"ROWS": 5}), Case("b", "perf", {"ROWS": 7})))
    after = replace(before, **{name: CHANGED[name]})
    assert (_describe(before), consequences(before)) != (_describe(after), consequences(after))


def test_a_prompt_offers_the_languages_that_the_set_admits() -> None:
    admitted = make_problem(contract=Contract(backends=("triton",)))
    for problem, offered in ((make_problem(), True), (admitted, False)):
        text = render_prompt(problem, get_protocol("verified"), "cuda")
        assert ("Kernels, in one of these languages:" in text, "load_inline" in text) == (offered, offered)
        assert "Triton" in text
    on_cpu = render_prompt(admitted, get_protocol("verified"), "cpu")
    assert "Triton" in on_cpu
    assert "C++" not in on_cpu
