"""The presets' numbers, as published: a changed number is a changed protocol."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from kbenv.errors import UsageError
from kbenv.problems.excluded import EXCLUDED
from kbenv.problems.problem import Comparator
from kbenv.protocol import (
    DEFAULT_PROTOCOL,
    OFF,
    ON,
    PRECISIONS,
    PROTOCOLS,
    TF32,
    TORCH_DEFAULT,
    Precision,
    Protocol,
    Tolerance,
    get_protocol,
)


def test_the_protocols_are_known_by_name() -> None:
    assert set(PROTOCOLS) == {"hardened", "kernelbench", "kernelbench-v0", "verified"}
    assert DEFAULT_PROTOCOL == get_protocol().name == "hardened"


@pytest.mark.parametrize(
    ("name", "precision", "tolerance"),
    [
        ("kernelbench", "fp32", 1e-4),
        ("kernelbench", "bf16", 1e-2),
        ("kernelbench", "fp16", 1e-2),
        ("kernelbench-v0", "fp32", 1e-2),
        ("kernelbench-v0", "bf16", 1e-2),
        ("kernelbench-v0", "fp16", 1e-2),
        ("verified", "fp32", 1e-3),
        ("verified", "bf16", 1e-2),
        ("verified", "fp16", 1e-2),
    ],
)
def test_tolerances(name: str, precision: Precision, tolerance: float) -> None:
    protocol = get_protocol(name, precision)
    assert (protocol.name, protocol.precision) == (name, precision)
    assert protocol.tolerance.absolute == protocol.tolerance.relative == tolerance


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_protocol_has_five_standard_trials_and_seed_42(name: str, precision: Precision) -> None:
    protocol = get_protocol(name, precision)
    assert (protocol.standard_trials, protocol.construction_seed) == (5, 42)
    assert protocol.timing.statistic == ("median" if name == "hardened" else "mean")
    assert protocol.timing.warmup_calls == 3
    assert protocol.timing.runner_pairs >= 3
    assert protocol.timing.confidence == 0.95
    assert protocol.require_custom_kernel is (name == "hardened")


@pytest.mark.parametrize("name", ["kernelbench", "kernelbench-v0"])
def test_kernelbench_follows_upstream(name: str) -> None:
    protocol = get_protocol(name)
    assert protocol.drawing == "cpu"
    assert protocol.hidden_inputs == ()
    assert protocol.excluded == ()
    assert protocol.memory is False
    assert protocol.timing.timed_calls == 100


def test_verified_follows_kernelbench_verified() -> None:
    protocol = get_protocol("verified")
    assert protocol.drawing == "device"
    assert [(hidden.name, hidden.factor) for hidden in protocol.hidden_inputs] == [
        ("D1", 1.0),
        ("D2", 3.0),
        ("D3", 0.01),
        ("D4", -1.0),
    ]
    assert set(protocol.excluded) == {"kernelbench/level2/23", "kernelbench/level2/80", "kernelbench/level2/83"}
    assert protocol.memory is True
    assert protocol.timing.timed_calls == 10


@pytest.mark.parametrize("precision", PRECISIONS)
def test_hardened_is_verified_and_more(precision: Precision) -> None:
    hardened, verified = get_protocol("hardened", precision), get_protocol("verified", precision)
    assert (hardened.name, hardened.precision) == ("hardened", precision)
    assert (hardened.hidden_inputs, hardened.tolerance) == (verified.hidden_inputs, verified.tolerance)
    assert (hardened.tf32, hardened.limits) == (verified.tf32, verified.limits)
    assert set(hardened.excluded) == set(EXCLUDED) > set(verified.excluded)
    assert hardened.timing.ratio == "median-of-pairs"
    for name in ("secret_seeds", "redraw_parameters", "perturb_timed", "guard_reference", "require_custom_kernel"):
        assert getattr(hardened, name) is True
        assert not getattr(verified, name)
    assert len(set(hardened.probes)) == len(hardened.probes) > 0
    assert verified.probes == ()
    assert verified.calibration is None
    assert Protocol.model_validate_json(hardened.model_dump_json()) == hardened


def test_the_calibrated_floors_lie_between_fast_arithmetic_and_the_next_lower_precision() -> None:
    """The root mean square of a rounding to p bits is some 0.4 * 2**-p of a value."""
    bits = {"fp32": 23, "fp16": 10, "bf16": 7}
    for precision, lower in (("fp32", "fp16"), ("fp16", "bf16")):
        rule = get_protocol(precision=precision, name="hardened").calibration  # type: ignore[arg-type]
        assert rule is not None
        assert 2 ** -bits[precision] < rule.rms_floor < 0.4 * 2 ** -bits[lower]
        assert rule.rms_floor < rule.element_floor
        assert 1 < rule.rms_factor < rule.element_factor
        assert rule.rms_factor < 8, "bfloat16 has eight times the error of TF32"


def test_tf32_flags() -> None:
    assert TF32(matmul=False, conv=False, rnn=False) == OFF
    assert TF32(matmul=True, conv=True, rnn=True) == ON
    assert TF32(matmul=False, conv=True, rnn=True) == TORCH_DEFAULT
    verified = get_protocol("verified").tf32
    assert (verified.reference_correctness, verified.reference_timing, verified.submission) == (OFF, ON, ON)
    upstream = get_protocol("kernelbench").tf32
    assert {upstream.reference_correctness, upstream.reference_timing, upstream.submission} == {TORCH_DEFAULT}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_submission_starts_with_the_baselines_flags(name: str) -> None:
    table = get_protocol(name).tf32
    assert table.submission == table.reference_timing


@pytest.mark.parametrize("name", PROTOCOLS)
def test_default_limits(name: str) -> None:
    limits = get_protocol(name).limits
    assert (limits.build_s, limits.call_s, limits.call_factor, limits.job_s) == (300.0, 30.0, 50.0, 900.0)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_custom_kernel_rule_can_be_overridden(wanted: bool) -> None:
    assert get_protocol("verified", require_custom_kernel=wanted).require_custom_kernel is wanted


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_set_s_tolerances_stand_in_upstream_s_rules_alone(name: str) -> None:
    protocol = get_protocol(name)
    for comparator in (Comparator(), Comparator("metrics", {"rmse": 0.1}), Comparator("exact", {"absolute": 0.1})):
        assert protocol.judging(comparator) is protocol
    judged = protocol.judging(Comparator("matched", {"absolute": 0.5, "share": 0.9}))
    if name.startswith("kernelbench"):
        relative = protocol.tolerance.relative
        assert judged.tolerance == Tolerance(absolute=0.5, relative=relative, share=0.9)
        assert judged.model_copy(update={"tolerance": protocol.tolerance}) == protocol
    else:
        assert judged is protocol


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="verified, kernelbench, kernelbench-v0; found 'strict'"):
        get_protocol("strict")
    with pytest.raises(UsageError, match="fp32, bf16, fp16; found 'fp8'"):
        get_protocol("verified", "fp8")  # type: ignore[arg-type]
    assert get_args(Precision) == PRECISIONS


def test_a_protocol_is_frozen_and_survives_json() -> None:
    protocol = get_protocol("verified")
    assert Protocol.model_validate_json(protocol.model_dump_json()) == protocol
    with pytest.raises(ValidationError, match="frozen"):
        protocol.standard_trials = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_quick_changes_nothing_but_the_clock(name: str) -> None:
    full = get_protocol(name)
    quick = full.with_effort("quick")
    assert (full.effort, quick.effort) == ("full", "quick")
    assert quick.model_copy(update={"effort": "full", "timing": full.timing}) == full
    assert quick.timing.runner_pairs == 1
    assert quick.timing.timed_calls < full.timing.timed_calls
    assert quick.timing.pair_spread == full.timing.pair_spread > 0
    assert full.with_effort("full") == full
    assert quick.with_effort("full") == quick == quick.with_effort("quick")


def test_an_unknown_effort_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError, match="full, quick"):
        get_protocol().with_effort("lazy")  # type: ignore[arg-type]
