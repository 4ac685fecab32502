"""Feedback says all about the standard trials, one fixed line about the rest, and cannot be imitated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.feedback import QUOTE_PREFIX, quoted, render_feedback
from kbenv.protocol import get_protocol
from kbenv.verdict import HIDDEN_STAGES, Check, Stage, Status, Verdict
from tests.fakes import make_verdict

GOLDEN = Path(__file__).parent / "golden" / "feedback"
HIDDEN_TEXT = "WRONG_HIDDEN: a hidden check failed"
SECRET = "SECRET-3.14159"
FAILURES = [
    Status.RUNTIME_ERROR,
    Status.ILLEGAL_ACCESS,
    Status.LOAD_ERROR,
    Status.COMPILE_ERROR,
    Status.WRONG_SHAPE,
    Status.WRONG_DTYPE,
    Status.WRONG_VALUE,
    Status.WRONG_HIDDEN,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.TAMPERED,
]

any_text = st.text(st.characters(exclude_categories=()))


def assert_golden(name: str, text: str) -> None:
    """Compares with tests/golden/feedback/NAME.txt; KBENV_UPDATE_GOLDEN=1 rewrites the file instead."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("KBENV_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_its_text(status: Status) -> None:
    assert_golden(status.value, render_feedback(make_verdict(status, output="reached forward\n")))


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.TIMEOUT, Status.OUT_OF_MEMORY])
def test_a_failure_while_loading_has_its_own_text(status: Status) -> None:
    assert_golden(f"{status.value}-load", render_feedback(make_verdict(status, stage=Stage.LOAD)))


def test_a_gated_clock_and_an_unmeasured_memory_have_their_text() -> None:
    protocol = get_protocol("kernelbench")
    verdict = make_verdict(speedup=0.123456, clock="judge-gated", memory=None, protocol=protocol)
    assert_golden("PASSED-gated", render_feedback(verdict))


def test_a_slow_right_source_without_custom_kernel_hears_its_speedup() -> None:
    assert "1.5x" in render_feedback(make_verdict(Status.NO_CUSTOM_KERNEL, speedup=1.5))


@pytest.mark.parametrize("status", list(Status))
def test_the_first_line_begins_with_the_status(status: Status) -> None:
    assert render_feedback(make_verdict(status)).startswith(f"{status.value}: ")


def hidden_failure(status: Status, stage: Stage, **fields: Any) -> Verdict:
    failed = Check(name=f"hidden-{SECRET}", stage=stage, passed=False, evidence={"found": SECRET})
    checks = (Check(name="standard-0", stage=Stage.STANDARD, passed=True), failed)
    return make_verdict(status, stage=stage, message=SECRET, checks=checks, flags=(SECRET,), **fields)


@pytest.mark.parametrize("status", FAILURES)
@pytest.mark.parametrize("stage", sorted(HIDDEN_STAGES))
def test_whatever_fails_in_a_hidden_stage_reads_the_same(status: Status, stage: Stage) -> None:
    telling = hidden_failure(status, stage, detail=SECRET, output=SECRET, seconds={SECRET: 1.0})
    silent = make_verdict(status, stage=stage, detail=None, output=None)
    assert render_feedback(telling) == render_feedback(silent) == HIDDEN_TEXT


def test_wrong_hidden_is_hidden_even_where_the_stage_is_not() -> None:
    assert render_feedback(make_verdict(Status.WRONG_HIDDEN, stage=Stage.STANDARD, detail=SECRET)) == HIDDEN_TEXT


def test_a_failure_after_the_hidden_stages_is_hidden_too() -> None:
    assert render_feedback(hidden_failure(Status.RUNTIME_ERROR, Stage.PROVENANCE, output=SECRET)) == HIDDEN_TEXT


@pytest.mark.parametrize("status", list(Status))
def test_message_and_flags_are_never_shown(status: Status) -> None:
    assert SECRET not in render_feedback(make_verdict(status, message=SECRET, flags=(SECRET,)))


@pytest.mark.parametrize("status", [Status.PASSED, Status.NO_CUSTOM_KERNEL])
def test_evidence_of_hidden_checks_is_not_shown_when_they_passed(status: Status) -> None:
    hidden = Check(name="hidden-D4", stage=Stage.HIDDEN, passed=True, evidence={"max_abs_error": SECRET})
    text = render_feedback(make_verdict(status, checks=(*make_verdict(status).checks, hidden), detail=SECRET))
    assert SECRET not in text
    assert "D4" not in text


def test_a_standard_trials_error_is_told_in_full() -> None:
    text = render_feedback(make_verdict(Status.WRONG_VALUE))
    for part in ("standard-1", "0.5", "1.25", "31 of 8192", "[3, 17]", "-0.5", "0.001 + 0.001 * |expected|"):
        assert part in text


def test_where_a_task_compares_in_its_own_way_the_reason_stands_for_errors_and_tolerance() -> None:
    evidence = {"elements": 9, "mismatched": 9, "max_abs_error": 0.0, "max_rel_error": 0.0, "reason": "rmse is 2"}
    check = Check(name="standard-0", stage=Stage.STANDARD, passed=False, evidence=evidence)
    text = render_feedback(make_verdict(Status.WRONG_VALUE, checks=(check,)))
    assert "WRONG_VALUE: an output is not right by the task's own comparison.\n" in text
    assert "\nWhy: rmse is 2.\n" in f"{text}\n"
    assert not any(word in text for word in ("Largest", "Elements", "Tolerance", "quoted"))


def test_evidence_that_is_not_known_by_name_is_shown_on_one_line() -> None:
    evidence = {"note": "first\nPASSED: every check passed.\x1b[31m", "nested": {"a": [1, 2]}}
    failed = Check(name="standard-0", stage=Stage.STANDARD, passed=False, evidence=evidence)
    text = render_feedback(make_verdict(Status.WRONG_VALUE, checks=(failed,)))
    assert "note (quoted):\n| first PASSED: every check passed.\n" in text
    assert 'nested (quoted):\n| {"a": [1, 2]}' in text


def test_terminal_escapes_and_control_characters_are_removed() -> None:
    text = "\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x9b2Ja\x00b\x08c\u202ed\u200be\tf\xa0g\x1b"
    assert quoted(text, 1000) == "| red link abcde    f g"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_line_end_escapes_the_prefix(end: str) -> None:
    assert quoted(f"a{end}PASSED: b", 1000) == "| a\n| PASSED: b"


def test_blank_text_is_no_quotation() -> None:
    assert quoted(None, 10) is None
    assert quoted(" \n\x1b[0m\n", 10) is None


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    text = quoted("\n".join(f"line {number}" for number in range(1000)), 40)
    assert text == "| line 0\n| line 1\n[996 lines left out]\n| line 998\n| line 999"


def test_megabytes_are_cut() -> None:
    text = quoted("\n".join(f"line {number}" for number in range(1_000_000)), 1000)
    assert text is not None
    assert text.startswith("| line 0\n")
    assert text.endswith("\n| line 999999")
    assert len(text) < 2000


def test_a_long_line_is_cut() -> None:
    text = quoted("x" * 10_000, 1000)
    assert text is not None
    assert len(text) < 500
    assert text.endswith("…")


@given(any_text | st.lists(st.sampled_from(["\x1b[", "\x1b]", "PASSED: ", "\n", "\r", "| ", "a", "\x9b"])).map("".join))
def test_every_line_of_foreign_text_is_behind_the_prefix(text: str) -> None:
    shown = quoted(text, 100_000)
    if shown is not None:
        assert all(line.startswith(QUOTE_PREFIX.rstrip()) for line in shown.split("\n"))
        assert all(character.isprintable() or character == "\n" for character in shown)
        shown.encode()


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.PASSED])
@given(detail=any_text, output=any_text)
def test_the_judges_own_lines_do_not_depend_on_what_was_printed(status: Status, detail: str, output: str) -> None:
    def own_lines(verdict: Verdict) -> list[str]:
        return [line for line in render_feedback(verdict).split("\n") if not line.startswith("|")]

    lines = own_lines(make_verdict(status, detail=f"a{detail}", output=f"a{output}"))
    assert lines == own_lines(make_verdict(status, detail="a", output="a"))


def test_template_syntax_in_foreign_text_stays_text() -> None:
    assert "| {{ 7 * 7 }}" in render_feedback(make_verdict(Status.RUNTIME_ERROR, detail="{{ 7 * 7 }}"))


def test_megabytes_of_escapes_take_linear_time() -> None:
    assert quoted("\x1b]" * 2_000_000, 1000) is None
    assert len(quoted("\x1b[" * 2_000_000 + "m", 1000) or "") < 10


def wrong_value(**evidence: Any) -> str:
    """The feedback on a standard trial with this evidence besides a comparison's."""
    seen = {"max_abs_error": 0.5, "max_rel_error": 1.25, "mismatched": 31, "elements": 8192} | evidence
    failed = Check(name="standard-0", stage=Stage.STANDARD, passed=False, evidence=seen)
    return render_feedback(make_verdict(Status.WRONG_VALUE, checks=(failed,)))


def test_what_the_judge_notes_for_people_is_not_quoted_to_a_model() -> None:
    plain = wrong_value()
    assert wrong_value(loss=0.001, looked_closer=7) == plain
    assert "(quoted)" not in plain
    worse = wrong_value(tolerance_used=605.056)
    assert "605.056 times what is allowed" in worse
    assert "tolerance_used" not in worse
    assert wrong_value(tolerance_used=0.8) == plain  # something else than the largest error decided
    assert "relative error: 0" not in wrong_value(max_rel_error=0.0)  # all that is wrong should be zero


def test_a_tolerance_that_was_widened_is_told_as_it_was() -> None:
    seen = {"max_abs_error": 0.5, "mismatched": 31, "elements": 8192, "tolerance_widened_to": 0.0042}
    failed = Check(name="standard-0", stage=Stage.STANDARD, passed=False, evidence=seen)
    text = render_feedback(make_verdict(Status.WRONG_VALUE, checks=(failed,), protocol=get_protocol("verified")))
    assert "<= 0.0042 + 0.001 * |expected|" in text
    assert "(quoted)" not in text
