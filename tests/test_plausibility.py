"""The floor: what caches may hold is taken off, what the reference itself disproves is none, and costs count low."""

from __future__ import annotations

import pytest
import torch

from kbenv.sandbox.judge.plausibility import Cost, Rates, byte_floor_ms, measure_rates, read_cost
from kbenv.sandbox.runner.cost import count_cost

MIB = 1 << 20
RATES = Rates(bandwidth=4e12, rate=4e14, cache_bytes=60 * MIB)
LARGE = Cost(input_bytes=3000 * MIB, weight_bytes=0, output_bytes=3000 * MIB, flops=0)


def floor_of(cost: Cost = LARGE, rates: Rates = RATES, calls: int = 1, reference_ms: float = 1e6) -> float | None:
    return byte_floor_ms(cost, rates, calls, reference_ms)


def test_the_floor_is_nine_tenths_of_the_time_of_the_bytes_beyond_the_caches():
    assert floor_of() == pytest.approx(0.9 * (6000 - 120) * MIB / 4e12 * 1e3)


def test_caches_are_taken_off_once_a_turn():
    assert floor_of(calls=10) == pytest.approx(0.9 * (60_000 - 120) * MIB / 10 / 4e12 * 1e3)


@pytest.mark.parametrize(("calls", "fits"), [(1, True), (15, True), (16, False)])
def test_slots_that_all_fit_in_the_caches_leave_no_floor(calls: int, fits: bool):
    cost = Cost(input_bytes=4 * MIB, weight_bytes=0, output_bytes=4 * MIB, flops=0)
    assert (floor_of(cost, calls=calls) is None) is fits


def test_weights_count_once_a_turn():
    cost = Cost(input_bytes=8 * MIB, weight_bytes=400 * MIB, output_bytes=8 * MIB, flops=0)
    floor = floor_of(cost, calls=4)
    assert floor == pytest.approx(0.9 * (4 * 16 + 400 - 120) * MIB / 4 / 4e12 * 1e3)


def test_there_is_no_floor_where_the_reference_is_below_it_or_no_cache_is_known():
    floor = floor_of()
    assert floor is not None
    assert floor_of(reference_ms=floor) is None
    assert floor_of(reference_ms=floor * 1.01) == floor
    assert floor_of(rates=Rates(4e12, 4e14, None)) is None


def test_the_rates_of_this_machine_are_measured_once():
    rates = measure_rates("cpu", "fp32")
    assert measure_rates("cpu", "fp32") is rates
    assert 1e8 < rates.bandwidth < 1e14
    assert 1e8 < rates.rate < 1e16
    assert torch.backends.cuda.matmul.allow_tf32 is False


def cost_of(forward, *given: torch.Tensor) -> Cost:
    with torch.no_grad():
        return read_cost(count_cost(lambda: forward(*given), given), 1)


def test_what_is_read_and_written_counts_once():
    x, weight = torch.randn(8, 64), torch.randn(32, 64)
    cost = cost_of(lambda x, w: torch.relu(torch.nn.functional.linear(x, w)) + x.sum(), x, weight)
    assert cost == Cost(x.nbytes, weight.nbytes, 8 * 32 * 4, 2 * 8 * 64 * 32)


def test_a_table_that_is_gathered_from_counts_as_nothing():
    index, table = torch.tensor([3, 1]), torch.randn(1000, 16)
    cost = cost_of(lambda i, t: torch.nn.functional.embedding(i, t) * 2 + t[i], index, table)
    assert (cost.input_bytes, cost.weight_bytes, cost.output_bytes) == (index.nbytes, 0, 2 * 16 * 4)


def test_a_slice_and_an_expanded_view_count_as_what_is_touched():
    x = torch.randn(100, 64)
    assert cost_of(lambda x: x[:10] * 2, x).input_bytes == 10 * 64 * 4
    assert cost_of(lambda x: x[:, :1].expand(100, 64) * 2, x).input_bytes == 100 * 4


def test_an_output_that_is_a_view_is_not_written():
    x = torch.randn(100, 64)
    assert cost_of(lambda x: x.t(), x) == Cost(0, 0, 0, 0)
    assert cost_of(lambda x: (x.mean(1, keepdim=True)).expand(100, 64), x).output_bytes == 100 * 4


def test_convolution_and_attention_count_as_operations():
    image, kernel = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    convolved = cost_of(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), image, kernel)
    assert convolved.flops == 2 * 8 * 8 * 4 * 3 * 3 * 3
    assert cost_of(lambda x: x @ x.t() @ x, torch.randn(16, 16)).flops == 2 * 2 * 16**3
