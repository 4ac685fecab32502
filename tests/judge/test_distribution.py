"""Outputs that are random by contract: judged as distributions where enough can be told of them, else refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kbenv.errors import ReferenceFaultError
from kbenv.evaluator import Evaluator
from kbenv.problems import load_problem
from kbenv.problems.problem import Comparator, Contract, Problem
from kbenv.sandbox.judge.distribution import Distance, Sample, allowed, choose_places, distances, lags_of, sample, width
from kbenv.verdict import Status
from tests.judge.evaluators import GetEvaluator

Draw = Callable[[], torch.Tensor]
X = torch.randn(64, 1024, generator=torch.Generator().manual_seed(3)) + torch.arange(64.0)[:, None] / 32
WEIGHT = torch.randn(1024, 512, generator=torch.Generator().manual_seed(4)) / 32


def mask(p: float, *shape: int) -> torch.Tensor:
    return torch.rand(shape or X.shape) < p


def compare(reference: Draw, submission: Draw, seed: int, lag: int | None = None) -> list[Distance]:
    """As the judge does in a standard trial, whose second calls are on equal inputs."""
    torch.manual_seed(seed)
    out = reference()
    places, lags = choose_places(out.numel(), seed), lags_of(out.shape)
    lag = random.Random(seed).choice(lags) if lag is None else lag

    def take(draw: Draw) -> Sample:
        return sample(draw().reshape(-1), places, lag)

    mean = torch.stack([take(reference).values for _ in range(6)]).mean(dim=0)
    others = [(take(reference), take(submission))]
    relative = 1e-3 if out.is_floating_point() else 0.0
    return list(distances(take(reference), take(submission), relative, mean=mean, calls=others, earlier=others))


def refused(seen: list[Distance]) -> set[str]:
    return {distance.name for distance in seen if distance.most > allowed(distance.size)}


@pytest.mark.parametrize(
    "reference",
    [
        lambda: F.dropout(X[::8], 0.5),
        lambda: F.dropout(X[::8].bfloat16(), 0.1),
        lambda: torch.rand(16, 1024),
        lambda: torch.randn(61, 101),
        lambda: mask(0.3, 16, 1024).int(),
        lambda: F.dropout(X[::4], 0.5) @ WEIGHT,  # elements of a row share a mask
    ],
    ids=["dropout", "bf16", "uniform", "few", "integers", "product"],
)
def test_sixty_comparisons_of_a_reference_with_itself_refuse_none(reference: Draw) -> None:
    seen = [distance for seed in range(60) for distance in compare(reference, reference, seed)]
    assert 0.1 < max(distance.most / allowed(distance.size) for distance in seen) < 0.7  # far from it, and not blind


@pytest.mark.parametrize(
    ("reference", "submission", "by"),
    [
        (lambda: F.dropout(X, 0.5), lambda: F.dropout(X, 0.4), "over all elements"),
        (lambda: F.dropout(X, 0.5), lambda: X * mask(0.5), "over all elements"),  # no 1 / (1 - p)
        (lambda: F.dropout(X, 0.5), lambda: torch.zeros_like(X), "over all elements"),
        (lambda: F.dropout(X, 0.5), lambda: F.dropout(X, 0.5) * (torch.arange(64) < 32)[:, None], "over all elements"),
        (lambda: F.dropout(X, 0.5), lambda: F.dropout(X, 0.5) * (torch.arange(64) < 62)[:, None], "in a part"),
        (lambda: F.dropout(X, 0.5), lambda: F.dropout(X.flip(1), 0.5), "about each element's mean"),
        (lambda: torch.randn(64, 1024), lambda: (2 * torch.rand(64, 1024) - 1) * 3**0.5, "over all elements"),
        (lambda: mask(0.3).int(), lambda: mask(0.25).int(), "over all elements"),
    ],
    ids=["rate", "scale", "zeros", "half", "rows", "elsewhere", "law", "integers"],
)
def test_another_distribution_is_refused_every_time(reference: Draw, submission: Draw, by: str) -> None:
    for seed in range(4):
        assert any(name.startswith(by) for name in refused(compare(reference, submission, seed)))


def test_one_block_of_random_numbers_for_all_is_seen_between_elements() -> None:
    def reference() -> torch.Tensor:
        return torch.randn(128, 1024)

    def repeated() -> torch.Tensor:
        return torch.randn(64, 1024).repeat(2, 1)

    assert 64 * 1024 in lags_of((128, 1024))
    assert refused(compare(reference, repeated, 0, lag=64 * 1024)) == {"between elements"}


def test_every_element_may_be_looked_at_and_lags_are_blocks_and_rows() -> None:
    places = torch.cat([choose_places(1 << 18, seed) for seed in range(40)])
    assert torch.bincount(places, minlength=1 << 18).count_nonzero() > 0.99 * (1 << 18)
    assert lags_of((6, 10)) == [1, 2, 4, 8, 10, 16, 32]
    assert lags_of((1,)) == lags_of(()) == lags_of((0, 3)) == [0]


def test_infinities_and_nan_are_values_of_their_own() -> None:
    e = torch.randn(1 << 14)
    places = choose_places(len(e), 0)
    for value in (float("nan"), float("inf"), -float("inf")):
        f = torch.where(torch.arange(len(e)) % 2 == 0, value, e)
        one, two = sample(e, places, 1), sample(f, places, 1)
        assert "over all elements" in refused(list(distances(one, two, 1e-3)))
        assert not refused(list(distances(two, two, 1e-3)))


def test_what_is_allowed_falls_with_size_and_grows_with_how_far_runs_are_apart() -> None:
    assert allowed(4096) == pytest.approx(2 * allowed(4 * 4096))
    usual = [Distance("", torch.tensor([0.87 * (2 / 4096) ** 0.5]), 4096)] * 15
    assert width(usual) == pytest.approx(1.0, rel=0.01)
    assert width([Distance("", 3 * distance.groups, 4096) for distance in usual]) == pytest.approx(5.0, rel=0.01)
    rare = [Distance("", torch.tensor([0.9] + [0.0] * 99), 4096)]
    assert width(rare) * allowed(4096) == pytest.approx(1.8)


# -- whole verdicts ---------------------------------------------------------------------------------------------------

SOURCE = '''\
"""Outputs: random."""

import torch
import torch.nn.functional as F


class {name}(torch.nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(128, 512) + torch.arange(128.0)[:, None] / 64]


def get_init_inputs():
    return []
'''
DROPOUT = "return F.dropout(x, 0.5, True)"
CANNED = (
    "self.kept = getattr(self, 'kept', None)\n"
    "        self.kept = F.dropout(x, 0.5, True) if self.kept is None else self.kept\n"
    "        return self.kept.clone()"
)
POOL = (
    "self.pool = getattr(self, 'pool', [])\n"
    "        self.calls = getattr(self, 'calls', -1) + 1\n"
    "        self.pool.append(torch.rand_like(x)) if len(self.pool) < 3 else None\n"
    "        return self.pool[self.calls % 3] + 1e-6 * torch.randn_like(x)"
)


def problem(body: str) -> Problem:
    contract = Contract(comparator=Comparator("distribution"))
    source = SOURCE.format(name="Model", body=body)
    return Problem(id="test/random", name="random", level=None, source=source, contract=contract)


@pytest.fixture
def evaluator(get_evaluator: GetEvaluator) -> Evaluator:
    return get_evaluator("verified brisk")


OTHER_DROPOUT = "return torch.where(torch.rand_like(x) < 0.5, x * 2.0001, 0.0)"
WITH_THE_CORPORA = [pytest.mark.corpus, pytest.mark.corpus_2]


@pytest.mark.parametrize(
    ("reference", "body", "rules"),
    [
        (DROPOUT, OTHER_DROPOUT, "verified brisk"),
        pytest.param(DROPOUT, OTHER_DROPOUT, "verified", marks=WITH_THE_CORPORA),
        pytest.param(
            "return torch.rand_like(x) < 0.3, torch.rand_like(x)",
            "return torch.rand_like(x) > 0.7, 1 - torch.rand_like(x)",
            "verified",
            marks=WITH_THE_CORPORA,
        ),
    ],
)
def test_an_honest_kernel_with_another_generator_is_credited(
    get_evaluator: GetEvaluator, reference: str, body: str, rules: str
) -> None:
    evaluator = get_evaluator(rules)
    verdict = evaluator.evaluate(problem(reference), SOURCE.format(name="ModelNew", body=body))
    assert verdict.status is Status.PASSED, verdict.message
    used = [check.evidence["tolerance_used"] for check in verdict.checks if "tolerance_used" in check.evidence]
    assert len(used) == 10  # five trials, four hidden, the timed calls
    assert all(0.0 < share < 1.0 for share in used)


@pytest.mark.corpus  # whole verdicts on what is compared above
@pytest.mark.corpus_1
@pytest.mark.parametrize(
    ("reference", "body", "by"),
    [
        (DROPOUT, "return F.dropout(x, 0.4, True)", "over all elements"),
        (DROPOUT, "return x * (torch.rand_like(x) < 0.5)", "over all elements"),
        (DROPOUT, "torch.manual_seed(7)\n        return F.dropout(x, 0.5, True)", "between calls"),
        (DROPOUT, CANNED, "between calls"),
        ("return torch.rand_like(x)", POOL, "between calls"),
        ("return torch.randn_like(x)", "return (2 * torch.rand_like(x) - 1) * 3**0.5", "over all elements"),
        (DROPOUT, "y = F.dropout(x, 0.5, True)\n        y[64:] = 0\n        return y", "over all elements"),
        (DROPOUT, "y = F.dropout(x, 0.5, True)\n        y[5, 5] = float('nan')\n        return y", "NaN"),
    ],
    ids=["rate", "scale", "seed", "canned", "pool", "law", "half", "nan"],
)
def test_a_wrong_kernel_is_refused(evaluator: Evaluator, reference: str, body: str, by: str) -> None:
    verdict = evaluator.evaluate(problem(reference), SOURCE.format(name="ModelNew", body=body))
    assert verdict.status in (Status.WRONG_VALUE, Status.WRONG_HIDDEN)
    assert by in verdict.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return F.dropout(x[:4], 0.5, True)", "output 0 has 2048 elements, too few"),
        ("return F.dropout(x, 0.5, True) @ torch.ones(512, 64).tril()", "depend on each other"),
        ("return x * torch.randn(1)", "depend on each other"),
        ("return F.dropout(x, 0.5, True), x.clone()", "output 1 is random by contract, and the same"),
    ],
)
def test_a_reference_of_which_too_little_can_be_told_judges_nothing(
    evaluator: Evaluator, body: str, words: str
) -> None:
    with pytest.raises(ReferenceFaultError, match=words):
        evaluator.evaluate(problem(body), SOURCE.format(name="ModelNew", body=body))


@pytest.mark.gpu
def test_on_a_gpu_a_dropout_is_credited_and_another_rate_refused() -> None:
    with Evaluator(protocol="verified", device="cuda:0", sandbox="process") as evaluator:
        for rate, status in (("0.5", Status.PASSED), ("0.4", Status.WRONG_VALUE)):
            body = DROPOUT.replace("0.5", rate)
            verdict = evaluator.evaluate(problem(DROPOUT), SOURCE.format(name="ModelNew", body=body))
            assert verdict.status is status, verdict.message


def test_a_file_says_in_its_docstring_that_its_outputs_are_random(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "noise.py"
    path.write_text(SOURCE.format(name="Model", body=DROPOUT))
    assert load_problem(str(path)).contract.comparator.kind == "distribution"
