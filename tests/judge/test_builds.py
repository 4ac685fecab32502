"""Extensions of PyTorch's in a real job: built outside the submission's process, once, and as right as ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kbenv.evaluator import Evaluator
from kbenv.verdict import Status
from tests.judge.corpus import TESTS, at_small_sizes, load_case
from tests.judge.evaluators import limited, make_protocol
from tests.judge.inside import SMALL_RELU

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a builder has a user of its own")

SUBMISSION = """
import ctypes
import os
import torch
from torch.utils.cpp_extension import load_inline

{before}
SOURCE = r'''
{include}
extern "C" void kernel(const float *x, float *y, long n) {{ for (long i = 0; i < n; i++) y[i] = {body}; }}
'''
load_inline("my_ext", SOURCE, no_implicit_headers=True, is_python_module=False, extra_cflags={flags})
library = ctypes.CDLL(os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "my_ext", "my_ext.so"))
library.kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        library.kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
"""
"""Without PyTorch's headers, so that it is built in a moment."""


def submission(body: str = "x[i] > 0 ? x[i] : 0", *, flags=("-O2",), include: str = "", before: str = "") -> str:
    return SUBMISSION.format(body=body, flags=list(flags), include=include, before=before)


@pytest.fixture(scope="module")
def open_evaluator(tmp_path_factory) -> Iterator:
    """A fresh evaluator whose judge keeps what it builds in a folder of this module's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield lambda device="cpu": Evaluator(
            protocol=make_protocol("verified tight", device), device=device, sandbox="process"
        )


@pytest.fixture(scope="module")
def evaluator(open_evaluator) -> Iterator[Evaluator]:
    with open_evaluator() as opened:
        yield opened


def test_an_extension_is_built_once_for_all_processes_and_jobs(evaluator, open_evaluator):
    source = submission()
    first, again = (evaluator.evaluate(SMALL_RELU, source) for _ in range(2))
    with open_evaluator() as another:
        elsewhere = another.evaluate(SMALL_RELU, source)
    assert first.status is again.status is elsewhere.status is Status.PASSED, first.message
    assert first.build is not None
    assert first.build.compiled == 1
    assert first.build.from_cache == first.build.requested - 1
    for later in (again, elsewhere):
        assert later.build is not None
        assert later.build.compiled == 0
        assert later.build.from_cache == later.build.requested
        assert later.build.declined == ()


def test_two_submissions_of_one_name_do_not_meet(evaluator):
    bodies = ["x[i] < 0 ? 0 : x[i]", "x[i]", "(x[i] + __builtin_fabsf(x[i])) * 0.5f"]
    found = [evaluator.evaluate(SMALL_RELU, submission(body)).status for body in bodies]
    assert found[0] is found[2] is Status.PASSED
    assert found[1] is Status.WRONG_VALUE


def test_a_refusal_is_a_compile_error_whoever_says_it(evaluator):
    source = submission("undeclared_name")
    first, again = (evaluator.evaluate(SMALL_RELU, source) for _ in range(2))
    for verdict in (first, again):
        assert verdict.status is Status.COMPILE_ERROR
        assert "undeclared_name" in (verdict.detail or "")
    assert again.build is not None
    assert again.build.from_cache == 1


def test_what_the_judge_does_not_build_pytorch_does(evaluator):
    verdict = evaluator.evaluate(SMALL_RELU, submission(flags=["-O2", "-frandom-seed=7"]))
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.build is not None
    assert set(verdict.build.declined) == {"a flag that is not known: -frandom-seed=7"}


def test_a_header_of_the_submissions_own_is_found(evaluator):
    before = "open('mine.h', 'w').write('static const float slope = 0;')"
    flags = ["-O2", "-DPLACE"]
    include = '#include "{}"'
    source = submission("x[i] > 0 ? x[i] : slope", flags=flags, include=include, before=before)
    source = source.replace('#include "{}"', "#include \"''' + os.path.abspath('mine.h') + r'''\"")
    verdict = evaluator.evaluate(SMALL_RELU, source)
    assert verdict.status is Status.PASSED, verdict.detail
    assert verdict.build is None


def test_a_build_without_end_is_the_submissions_timeout(evaluator):
    loop = "constexpr long spin() { long s = 0; for (long i = 0; i < 1L << 60; i++) s += i; return s; }"
    flags = ["-fconstexpr-loop-limit=2147483647", "-fconstexpr-ops-limit=9223372036854775807"]
    source = submission(include=f"{loop}\nconstexpr long x = spin();", flags=flags)
    with limited(evaluator, build_s=4.0):
        assert evaluator.evaluate(SMALL_RELU, source).status is Status.TIMEOUT
    assert evaluator.evaluate(SMALL_RELU, submission()).status is Status.PASSED


@pytest.mark.slow
def test_a_binding_of_pytorchs_is_built_with_a_part_of_its_headers(open_evaluator):
    case = at_small_sizes(load_case(TESTS / "honest" / "cpp_load_inline.py"))
    rules = make_protocol("verified brisk")
    with Evaluator(protocol=rules, device="cpu", sandbox="process") as evaluator:
        verdict = evaluator.evaluate(case.problem, case.source)
    assert verdict.status is Status.PASSED, verdict.detail
    assert verdict.build is not None
    assert (verdict.build.slim, verdict.build.slim_failed) == (1, 0)


@pytest.mark.gpu
def test_a_cuda_extension_is_built_once_with_a_part_of_the_headers(open_evaluator):
    case = load_case(TESTS / "honest" / "cuda" / "load_inline_current_stream.py")
    with open_evaluator("cuda:0") as evaluator:
        first, again = (evaluator.evaluate(case.problem, case.source) for _ in range(2))
    assert first.status is again.status is Status.PASSED, first.detail
    assert first.build is not None
    assert again.build is not None
    assert (first.build.slim_failed, first.build.declined) == (0, ())
    assert first.build.slim >= 1
    assert again.build.compiled == 0
    assert again.seconds["build"] < 0.5 * first.seconds["build"]
