"""The worked examples in our prompts, judged: a model that copies one must be right.

On a GPU: `pytest -m gpu tests/judge/test_prompt_examples.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kbenv.prompts
from kbenv.problems.loaders import file
from kbenv.prompt import EXAMPLES
from kbenv.verdict import Status
from tests.judge.evaluators import GetEvaluator

FOLDER = Path(kbenv.prompts.__file__).parent / "examples"


def judge(get_evaluator: GetEvaluator, name: str, language: str, device: str) -> None:
    problem = file.read(FOLDER / name / "reference.py", id=f"{name}.py", name=name, level=None)
    source = (FOLDER / name / f"{language}.py").read_text(encoding="utf-8")
    verdict = get_evaluator("verified brisk", device=device).evaluate(problem, source)
    assert verdict.status is Status.PASSED, (verdict.message, verdict.detail)
    assert verdict.speedup is not None
    print(f"{name} {language}: {verdict.speedup.value:.2f}x")


CPP_IN_EVERY_RUN = "elementwise"
"""Of the examples in C++, each half a minute's work for a compiler of PyTorch's headers."""


def on_the_cpu() -> list:
    long = [pytest.mark.corpus, pytest.mark.corpus_1]
    pairs = [(name, language) for name in EXAMPLES for language in ("cpp", "c")]
    return [
        pytest.param(*pair, marks=long if pair[1] == "cpp" and pair[0] != CPP_IN_EVERY_RUN else []) for pair in pairs
    ]


@pytest.mark.parametrize(("name", "language"), on_the_cpu())
def test_an_example_is_credited(get_evaluator: GetEvaluator, name: str, language: str) -> None:
    judge(get_evaluator, name, language, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("language", ["cuda", "cuda_raw", "triton"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_credited_on_a_gpu(get_evaluator: GetEvaluator, name: str, language: str) -> None:
    judge(get_evaluator, name, language, "cuda:0")
