"""The verdict's own consistency: what it lacks it cannot claim, and its JSON is the documented schema, version 1."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kbenv import protocol as protocol_module
from kbenv import verdict as verdict_module
from kbenv.verdict import HIDDEN_STAGES, Check, Interval, Stage, Status, Verdict
from tests.fakes import make_verdict

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "tests" / "golden" / "verdict.schema.json"
DOCUMENT = ROOT / "docs" / "verdict.md"

RIGHT = (Check(name="standard-0", stage=Stage.STANDARD, passed=True),)
WRONG = (Check(name="hidden-D4", stage=Stage.HIDDEN, passed=False),)


@pytest.mark.parametrize("status", list(Status))
def test_every_status_survives_json(status: Status) -> None:
    verdict = make_verdict(status)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert Verdict.model_validate(json.loads(json.dumps(verdict.model_dump(mode="json")))) == verdict


@pytest.mark.parametrize("status", list(Status))
def test_passed_alone_is_credited_and_the_json_says_so(status: Status) -> None:
    verdict = make_verdict(status)
    assert verdict.credited is (status is Status.PASSED)
    assert json.loads(verdict.model_dump_json())["credited"] is verdict.credited


def test_credit_cannot_be_claimed_in_json() -> None:
    data = make_verdict(Status.WRONG_VALUE).model_dump(mode="json") | {"credited": True}
    assert Verdict.model_validate(data).credited is False


@pytest.mark.parametrize("field", ["speedup", "latency_ms", "reference_latency_ms", "clock", "measurement"])
def test_the_parts_of_a_timing_come_together(field: str) -> None:
    with pytest.raises(ValidationError, match="come together"):
        make_verdict(Status.PASSED, **{field: None})


@pytest.mark.parametrize(
    "status", [status for status in Status if status not in (Status.PASSED, Status.NO_CUSTOM_KERNEL)]
)
def test_no_speedup_without_correctness(status: Status) -> None:
    with pytest.raises(ValidationError, match="cannot claim a speedup"):
        make_verdict(status, speedup=2.0)


def test_right_without_custom_kernel_may_have_a_speedup() -> None:
    verdict = make_verdict(Status.NO_CUSTOM_KERNEL, speedup=3.0)
    assert verdict.speedup is not None
    assert not verdict.credited


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            dict.fromkeys(("speedup", "latency_ms", "reference_latency_ms", "clock", "measurement")),
            "needs a speedup",
        ),
        ({"checks": ()}, "needs checks, none of them failed"),
        ({"checks": RIGHT + WRONG}, "needs checks, none of them failed"),
        ({"stage": Stage.HIDDEN, "checks": RIGHT}, "names the stage it failed at, and only then"),
    ],
)
def test_what_passed_lacks_nothing(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make_verdict(Status.PASSED, **overrides)


def test_a_failed_check_forbids_no_custom_kernel_too() -> None:
    with pytest.raises(ValidationError, match="needs checks, none of them failed"):
        make_verdict(Status.NO_CUSTOM_KERNEL, checks=RIGHT + WRONG)


def test_a_dropped_check_and_one_of_provenance_forbid_nothing() -> None:
    dropped = Check(name="hidden-D2", stage=Stage.HIDDEN, passed=None, evidence={"reason": "overflows to Inf"})
    custom = Check(name="custom-kernel", stage=Stage.PROVENANCE, passed=False)
    assert make_verdict(Status.PASSED, checks=(*RIGHT, dropped, custom)).credited


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_failed_names_its_stage(status: Status) -> None:
    with pytest.raises(ValidationError, match="names the stage"):
        make_verdict(status, stage=None, checks=RIGHT)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_is_nan_or_infinite(value: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Interval(value=value, low=0.0, high=1.0)


def test_a_verdict_of_a_later_version_with_more_fields_can_be_read() -> None:
    later = json.loads(make_verdict().model_dump_json())
    later["bonus"] = 1
    later["protocol"]["timing"]["bonus"] = 2
    assert Verdict.model_validate_json(json.dumps(later)) == make_verdict()


def test_later_changes_are_refused() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make_verdict().status = Status.TIMEOUT  # type: ignore[misc]


def test_hidden_stages_are_those_after_the_standard_trials() -> None:
    assert frozenset({Stage.HIDDEN, Stage.TIMING, Stage.MEMORY}) == HIDDEN_STAGES


def test_the_json_schema_is_the_frozen_one() -> None:
    schema = Verdict.model_json_schema(mode="serialization")
    if os.environ.get("KBENV_UPDATE_GOLDEN"):
        SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert schema == json.loads(SCHEMA.read_text(encoding="utf-8"))


def _models() -> list[type[BaseModel]]:
    found = []
    for module in (verdict_module, protocol_module):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__:
                found.append(value)
    return [model for model in found if model.model_fields]


@pytest.mark.parametrize("model", _models(), ids=lambda model: model.__name__)
def test_every_field_is_documented(model: type[BaseModel]) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    section = re.search(rf"^#+ {model.__name__}$(.*?)(?=^#+ |\Z)", document, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/verdict.md has no section {model.__name__}"
    documented = re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)
    assert documented == [*model.model_fields, *model.model_computed_fields]


def test_every_status_and_stage_is_documented() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for member in (*Status, *Stage):
        assert f"| `{member.value}` |" in document
