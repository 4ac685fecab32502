"""What the hardened tolerance makes of real arithmetic: another order of sums passes, a lower precision does not.

TF32 is simulated: operands of products rounded to 10 bits of mantissa.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kbenv.protocol import get_protocol
from kbenv.sandbox.judge.calibration import Calibration, Closer, Rule
from kbenv.sandbox.judge.compare import Comparison
from kbenv.sandbox.judge.probe import jitter
from kbenv.sandbox.layout import Arena
from kbenv.sandbox.runner.rounded import RoundedOperators
from kbenv.sandbox.runner.truncated import ChangedProducts, dithered_products
from tests.arenas import arena_of

_RULE = get_protocol("hardened").calibration
assert _RULE is not None
RULE = Rule(**_RULE.model_dump())
Convert = Callable[[Tensor], Tensor]


def same(x: Tensor) -> Tensor:
    return x


def tf32(x: Tensor) -> Tensor:
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def cut(x: Tensor) -> Tensor:
    """To TF32 as a tensor core does that is fed float32."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def through(dtype: torch.dtype) -> Convert:
    return lambda x: x.to(dtype).to(x.dtype)


def whole_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def one_after_another(x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        total = total + column
    return total


def by_threads(x: Tensor) -> Tensor:
    """As 64 threads of a block do, each over every 64th column, and then a tree."""
    partial = one_after_another(x.unflatten(-1, (-1, 64)).transpose(-1, -2))
    while partial.shape[-1] > 1:
        half = partial.shape[-1] // 2
        partial = partial[..., :half] + partial[..., half:]
    return partial[..., 0]


def compensated(x: Tensor) -> Tensor:
    total, lost = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        term = column - lost
        total, lost = total + term, (total + term - total) - term
    return total


def whole_product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def split_product(a: Tensor, b: Tensor) -> Tensor:
    """The inner dimension in pieces, last to first."""
    total = torch.zeros(1)
    for x, y in zip(reversed(a.split(32, -1)), reversed(b.split(32, -2)), strict=True):
        total = total + x @ y
    return total


def inexact_exp(x: Tensor) -> Tensor:
    """Off by up to one part in 100,000, smoothly, as of a short polynomial."""
    return x.exp() * (1 + 1e-5 * torch.sin(37 * x))


@dataclass(frozen=True)
class Arithmetic:
    """How a computation is done: `inputs` to all that goes in, `operands` to those of products, `result` at the end."""

    inputs: Convert = same
    operands: Convert = same
    result: Convert = same
    total: Callable[[Tensor], Tensor] = whole_sum
    product: Callable[[Tensor, Tensor], Tensor] = whole_product
    exp: Convert = torch.exp


def weights(*shape: int) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * 2 - 1) / shape[-1] ** 0.5


def matmul(how: Arithmetic, x: Tensor) -> Tensor:
    return how.product(how.operands(x), how.operands(weights(256, 512).t().to(x)))


def linear_gelu(how: Arithmetic, x: Tensor) -> Tensor:
    return F.gelu(matmul(how, x) + 0.1)


def attention(how: Arithmetic, x: Tensor) -> Tensor:
    q, k, v = (how.operands(part) for part in x.view(-1, 3, 64, 64).unbind(1))
    scores = how.product(q, k.mT) / 8
    powers = how.exp(scores - scores.amax(-1, keepdim=True))
    return how.product(how.operands(powers / how.total(powers).unsqueeze(-1)), v)


def convolution(how: Arithmetic, x: Tensor) -> Tensor:
    image = x.view(-1, 8, 32, 32)
    return F.conv2d(how.operands(image), how.operands(weights(16, 8, 3, 3).to(x) / 3), padding=1).relu()


def layer_norm(how: Arithmetic, x: Tensor) -> Tensor:
    centred = x - how.total(x).unsqueeze(-1) / x.shape[-1]
    return centred * (how.total(centred.square()).unsqueeze(-1) / x.shape[-1] + 1e-5).rsqrt()


def softmax(how: Arithmetic, x: Tensor) -> Tensor:
    powers = how.exp(x - x.amax(-1, keepdim=True))
    return powers / how.total(powers).unsqueeze(-1)


def gelu(how: Arithmetic, x: Tensor) -> Tensor:
    return F.gelu(x)


def row_sums(how: Arithmetic, x: Tensor) -> Tensor:
    return how.total(x)


PRODUCTS = {"matmul": matmul, "linear and gelu": linear_gelu, "attention": attention, "convolution": convolution}
OTHERS = {"layer norm": layer_norm, "softmax": softmax, "gelu": gelu, "row sums": row_sums}
DRAWS = {"uniform": torch.rand, "normal": torch.randn}


def use(
    compute: Callable[[Arithmetic, Tensor], Tensor], draw: str, how: Arithmetic, dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> Comparison:  # fmt: skip
    """Judges one way to compute, on a draw times `scale`; the baseline uses TF32."""
    shape = (96, 512) if compute in PRODUCTS.values() else (96, 2048)
    x = DRAWS[draw](shape, generator=torch.Generator().manual_seed(1)) * scale
    exact, fp32 = arena_of([compute(Arithmetic(), x.double())]), arena_of([compute(Arithmetic(), x)])
    moved = arena_of([x])
    jitter(moved, range(1), 1)
    calibration = Calibration(RULE, "cpu")
    calibration.begin(exact, 0)
    calibration.add_variant(exact, fp32, 0)
    calibration.add_variant(exact, arena_of([compute(Arithmetic(operands=tf32), x)]), 0)
    calibration.add_variant(exact, arena_of([compute(Arithmetic(operands=cut), x)]), 0)
    calibration.add_variant(exact, arena_of([compute(Arithmetic(), moved.views(0)[0])]), 0)
    calibration.finish(0, lasting=True)
    found = arena_of([how.result(compute(how, how.inputs(x).to(dtype)).float())])
    comparison = calibration.compare(exact, found, 0, fp32, [])
    assert comparison.passed or not few_settle(compute, x, found)
    return comparison


def few_settle(compute: Callable[[Arithmetic, Tensor], Tensor], x: Tensor, found: Arena) -> bool:
    """Whether the baseline and moved inputs alone, and no float64, settle it."""
    fp32, moved = arena_of([compute(Arithmetic(), x)]), arena_of([x])
    jitter(moved, range(1), 1)
    calibration = Calibration(RULE, "cpu")
    calibration.begin(fp32, 0)
    calibration.add_variant(fp32, arena_of([compute(Arithmetic(operands=tf32), x)]), 0)
    calibration.add_variant(fp32, arena_of([compute(Arithmetic(), moved.views(0)[0])]), 0)
    calibration.finish(0, lasting=False)
    return calibration.settle_calibrated(fp32, found, 0) is not None


HONEST = {
    "as it is": Arithmetic(),
    "sums one after another": Arithmetic(total=one_after_another),
    "sums by threads": Arithmetic(total=by_threads),
    "compensated sums": Arithmetic(total=compensated),
    "split products": Arithmetic(product=split_product),
    "an inexact exponential": Arithmetic(exp=inexact_exp),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("compute", [*PRODUCTS.values(), *OTHERS.values()], ids=[*PRODUCTS, *OTHERS])
@pytest.mark.parametrize("how", HONEST.values(), ids=HONEST)
def test_fp32_passes_in_any_order_and_with_fast_functions(compute, draw, how):
    assert use(compute, draw, how).tolerance_used < 0.7


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("product", [whole_product, split_product], ids=["whole", "split"])
@pytest.mark.parametrize("operands", [tf32, cut], ids=["rounded", "cut"])
def test_tf32_passes_where_the_baseline_uses_it(compute, draw, product, operands):
    assert use(compute, draw, Arithmetic(operands=operands, product=product)).tolerance_used < 0.7


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
def test_few_runs_settle_what_the_baseline_does_and_not_what_half_precision_does(compute, draw):
    x = DRAWS[draw](96, 512, generator=torch.Generator().manual_seed(3))
    for how in (Arithmetic(), Arithmetic(operands=tf32, product=split_product)):
        assert few_settle(compute, x, arena_of([compute(how, x)]))
    assert not few_settle(compute, x, arena_of([compute(Arithmetic(), x.bfloat16()).float()]))


@pytest.mark.parametrize("compute", [*PRODUCTS.values(), *OTHERS.values()], ids=[*PRODUCTS, *OTHERS])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_whole_computation_in_bfloat16_does_not_pass(compute, draw):
    # Of sums of products of one sign operands cut to TF32 are off by as much: signed draws tell.
    of_one_sign = draw == "uniform" and compute in PRODUCTS.values()
    assert use(compute, draw, Arithmetic(), torch.bfloat16).tolerance_used > (0.5 if of_one_sign else 1.5)


@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
def test_products_of_bfloat16_do_not_pass_even_with_sums_in_fp32(compute):
    assert use(compute, "normal", Arithmetic(operands=through(torch.bfloat16))).tolerance_used > 1.2


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("compute", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_where_no_product_occurs_half_precision_shows_in_what_goes_in_or_comes_out(compute, draw, dtype):
    assert use(compute, draw, Arithmetic(inputs=through(dtype), result=through(dtype))).tolerance_used > 1.5
    assert use(compute, draw, Arithmetic(result=through(dtype))).tolerance_used > 1.5


@pytest.mark.parametrize("compute", [*PRODUCTS.values(), *OTHERS.values()], ids=[*PRODUCTS, *OTHERS])
def test_beyond_its_range_half_precision_shows_everywhere(compute):
    assert not use(compute, "normal", Arithmetic(inputs=through(torch.float16)), scale=2.0**17).passed


def by_the_window(how: Arithmetic, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention to the last 256 tokens; scores are scaled before their product, and powers divided after theirs."""
    place = torch.arange(q.shape[-2])
    distance = place.unsqueeze(1) - place
    scores = how.operands(q * (math.log2(math.e) / 8)) @ how.operands(k).mT
    scores = scores.masked_fill((distance < 0) | (distance >= 256), -torch.inf)
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return how.operands(powers) @ how.operands(v) / powers.sum(-1, keepdim=True)


def window_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    place = torch.arange(q.shape[-2])
    distance = place.unsqueeze(1) - place
    scores = (q @ k.mT / 8).masked_fill((distance < 0) | (distance >= 256), -torch.inf)
    return torch.softmax(scores, -1) @ v


def test_rows_that_hang_on_two_scores_pass_once_they_are_looked_at_closer() -> None:
    """Both ways to round to TF32 can hit such a row's scores by chance, and an honest kernel's third way not."""
    draws = torch.Generator().manual_seed(5)
    inputs = [3 * size * torch.randn(2, 1024, 64, generator=draws) for size in (0.8, 1.0, 0.7)]
    exact = arena_of([window_attention(*(x.double() for x in inputs))])
    fp32 = arena_of([window_attention(*inputs)])

    def reference(change: Convert) -> Arena:
        with ChangedProducts(change):
            return arena_of([window_attention(*inputs)])

    calibration = Calibration(RULE, "cpu")
    calibration.begin(exact, 0)
    for variant in (fp32, reference(tf32), reference(cut)):
        calibration.add_variant(exact, variant, 0)
    calibration.finish(0, lasting=True)

    def outside(found: Tensor) -> tuple[int, int]:
        """How many are, and how many still when they have been looked at closer."""
        first = calibration.compare(exact, arena_of([found]), 0, fp32, [])
        places = calibration.outside.get(0, torch.zeros(0, dtype=torch.int64))
        error = calibration.least_error(0, 0, places)
        for _ in range(4):
            with dithered_products(), RoundedOperators():
                moved = arena_of([window_attention(*inputs)])
            off = (exact.flat_leaf(0, 0)[places] - moved.flat_leaf(0, 0)[places].double()).abs()
            error = torch.maximum(error, off)
        closer = calibration.compare(exact, arena_of([found]), 0, fp32, [], closer={0: Closer(places, error)})
        return first.mismatched, closer.mismatched

    at_first, at_last = outside(by_the_window(Arithmetic(operands=cut), *inputs))
    assert 0 < at_first < 0.01 * exact.layout.slot_bytes / 8
    assert at_last == 0
    wrong = by_the_window(Arithmetic(), *inputs)
    wrong[1, 200:204] *= 1.5
    assert outside(wrong)[1] > 200
