"""A job's memory is planned before it starts: slots shrink to one, then are lent in turn, then the job does not fit."""

from __future__ import annotations

import dataclasses

import pytest

from kbenv.sandbox.judge.plan import Demand, DoesNotFitError, Plan, make_plan

GIB = 1 << 30
MIB = 1 << 20
SMALL = Demand(
    device="cuda", input_bytes=4 * MIB, output_bytes=4 * MIB, work_bytes=8 * MIB, weight_bytes=MIB, forward_ms=0.1,
    free_bytes=100 * GIB, l2_bytes=50 * MIB,
)  # fmt: skip


def plan_of(demand: Demand, *, target_turn_ms: float = 4.0, max_slots: int = 192, cold: float = 3.0) -> Plan:
    return make_plan(demand, target_turn_ms=target_turn_ms, max_slots=max_slots, cold_l2_multiple=cold)


def test_a_turn_holds_as_many_calls_as_fill_its_time():
    assert (plan_of(SMALL).slots, plan_of(SMALL).calls) == (40, 40)
    assert plan_of(SMALL, target_turn_ms=1.0, cold=0.0).slots == 10


def test_no_turn_holds_more_than_the_protocol_allows():
    assert plan_of(dataclasses.replace(SMALL, forward_ms=0.001)).slots == 192
    assert plan_of(SMALL, max_slots=3).calls == 3


def test_short_turns_rotate_over_the_slots_that_a_cold_cache_needs():
    plan = plan_of(dataclasses.replace(SMALL, forward_ms=2.0))
    assert plan.slots == 19  # 19 slots of 8 MiB are the first to span three times 50 MiB
    assert plan.calls == 2
    assert plan.l2_cold


def test_no_slots_are_added_for_the_cache_of_a_slow_call():
    plan = plan_of(dataclasses.replace(SMALL, forward_ms=100.0))
    assert (plan.slots, plan.calls, plan.l2_cold) == (1, 1, False)


def test_a_cache_that_the_slots_cannot_span_is_said_to_be_warm():
    plan = plan_of(SMALL, max_slots=4)
    assert not plan.l2_cold
    assert not plan_of(dataclasses.replace(SMALL, device="cpu", l2_bytes=0)).l2_cold


def test_slots_shrink_with_the_memory_and_always_fit():
    demand = dataclasses.replace(SMALL, input_bytes=512 * MIB, output_bytes=256 * MIB, work_bytes=GIB, forward_ms=0.02)
    slots = []
    for gib in (140, 80, 40, 24, 16, 12, 10):
        plan = plan_of(dataclasses.replace(demand, free_bytes=gib * GIB))
        assert not plan.exclusive
        assert plan.need_bytes <= plan.have_bytes == gib * GIB
        slots.append(plan.slots)
    assert slots == sorted(slots, reverse=True)
    assert slots[0] > slots[-1] >= 1


def test_where_not_one_slot_fits_thrice_slots_are_lent_in_turn():
    demand = dataclasses.replace(SMALL, input_bytes=4 * GIB, output_bytes=4 * GIB, work_bytes=4 * GIB)
    assert not plan_of(dataclasses.replace(demand, free_bytes=48 * GIB)).exclusive
    plan = plan_of(dataclasses.replace(demand, free_bytes=16 * GIB))
    assert (plan.slots, plan.calls, plan.exclusive, plan.l2_cold) == (1, 1, True, True)
    assert plan.need_bytes <= plan.have_bytes


def test_a_card_of_24_gib_judges_six_gib_in_and_six_out():
    demand = dataclasses.replace(
        SMALL, input_bytes=6 * GIB, output_bytes=6 * GIB, work_bytes=6 * GIB, weight_bytes=0, free_bytes=int(23.2 * GIB)
    )
    plan = plan_of(demand)
    assert (plan.slots, plan.exclusive) == (1, True)


def test_what_does_not_fit_says_need_and_have():
    demand = dataclasses.replace(SMALL, input_bytes=6 * GIB, output_bytes=6 * GIB, free_bytes=8 * GIB)
    with pytest.raises(DoesNotFitError, match=r"needs 13\.69 GiB of cuda memory .* have 8\.00 GiB"):
        plan_of(demand)


def test_host_memory_is_never_lent_in_turn():
    demand = dataclasses.replace(SMALL, device="cpu", l2_bytes=0, input_bytes=GIB, output_bytes=GIB)
    assert plan_of(dataclasses.replace(demand, free_bytes=24 * GIB)).slots >= 1
    with pytest.raises(DoesNotFitError, match="cpu memory"):
        plan_of(dataclasses.replace(demand, free_bytes=4 * GIB))
