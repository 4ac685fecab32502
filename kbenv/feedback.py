"""What an agent may read of a verdict: a pure function from a verdict to text.

The standard trials' failures are told in full. What failed later was hidden, and reads the same whatever it was;
nothing that the submission emitted is shown then, since it has seen hidden inputs and could print them. A verdict's
`message` and `flags` are written for people and never shown.

The text's own lines never begin with `QUOTE_PREFIX`, and every line that a submission or a compiler wrote does, so that
neither can pass for the judge's. The words are in prompts/feedback.j2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from kbenv.case import failed_case
from kbenv.prompts import render
from kbenv.verdict import Check, Stage, Status, Verdict

QUOTE_PREFIX = "| "
DETAIL_CHARACTERS = 6000
OUTPUT_CHARACTERS = 2000
ACCESS_CHARACTERS = 1600
LINE_CHARACTERS = 400
VALUE_CHARACTERS = 200

_VISIBLE_STAGES = frozenset({Stage.FORMAT, Stage.LOAD, Stage.STANDARD})
_COMPARISON_KEYS = frozenset(
    {"max_abs_error", "max_rel_error", "tolerance_used", "tolerance_widened_to", "mismatched", "elements", "output",
     "index", "expected", "found", "reason"}
)  # fmt: skip
_FOR_PEOPLE = ("anatomy", "loss", "looked_closer")
"""What is told elsewhere, and how the judge came to its answer: nothing that a kernel could be mended by."""
_ANATOMY_KEYS = frozenset(
    {"shape", "elements", "wrong", "box", "box_share", "tails", "flat_tail", "periods", "growth", "factor", "offset",
     "hypotheses"}
)  # fmt: skip
_SCANNED_CHARACTERS = 100_000
_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)


def render_feedback(verdict: Verdict) -> str:
    """The text a model reads about its last answer; its first line begins with the status, as far as it may be told.

    A failure in a hidden stage gives exactly "WRONG_HIDDEN: a hidden check failed".
    """
    if is_hidden(verdict):
        return render("feedback.j2", hidden=True).strip()
    told = not (verdict.credited or verdict.status is Status.NO_CUSTOM_KERNEL)
    bad_access = verdict.diagnosis if told and verdict.status is Status.ILLEGAL_ACCESS else None
    standard = [check for check in verdict.checks if check.stage is Stage.STANDARD]
    failed = next((check for check in standard if check.passed is False), None)
    return render(
        "feedback.j2",
        hidden=False,
        verdict=verdict,
        status=verdict.status.value,
        stage=verdict.stage.value if verdict.stage is not None else None,
        failed=failed,
        case=failed_case(verdict),
        evidence=_evidence(failed),
        further=_further(failed),
        anatomy=_anatomy(failed) if told else None,
        access=quoted(bad_access.access, ACCESS_CHARACTERS) if bad_access is not None else None,
        no_access=quoted(bad_access.missing.get("access"), VALUE_CHARACTERS) if bad_access is not None else None,
        trials_passed=sum(check.passed is True and check.name.startswith("standard-") for check in standard),
        detail=quoted(verdict.detail, DETAIL_CHARACTERS) if told else None,
        output=quoted(verdict.output, OUTPUT_CHARACTERS),
    ).strip()


def is_hidden(verdict: Verdict) -> bool:
    """Whether the agent may learn only that a hidden check failed.

    Fails closed: a failure is told only where it is known to lie before the hidden checks, or to be the provenance rule
    that the prompt itself states.
    """
    if verdict.status is Status.WRONG_HIDDEN:
        return True
    if verdict.credited or verdict.status is Status.NO_CUSTOM_KERNEL:
        return False
    return verdict.stage not in _VISIBLE_STAGES


def shown_status(verdict: Verdict) -> Status:
    """The status as far as the agent may be told: WRONG_HIDDEN for whatever failed in a hidden stage."""
    return Status.WRONG_HIDDEN if is_hidden(verdict) else verdict.status


def quoted(text: str | None, max_characters: int) -> str | None:
    """Foreign text made safe to show: cleaned, every line behind `QUOTE_PREFIX`, its middle left out when it is long.

    Args:
        text: what a submission or a compiler wrote; any string.
        max_characters: about how much of it to keep, half from the start (a compiler's first error) and half from the
            end (a traceback's last line).

    Returns:
        None when nothing printable is left.
    """
    if text is None:
        return None
    if len(text) > 2 * _SCANNED_CHARACTERS:
        text = text[:_SCANNED_CHARACTERS] + "\n" + text[-_SCANNED_CHARACTERS:]
    lines = [_bounded(_clean(line), LINE_CHARACTERS) for line in _ESCAPE.sub("", text).splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    if not lines:
        return None
    head = _fitting(lines, max_characters // 2)
    tail = _fitting(lines[head:][::-1], max_characters - max_characters // 2)
    left_out = len(lines) - head - tail
    shown = [QUOTE_PREFIX + line for line in lines]
    if left_out > 0:
        shown[head : len(lines) - tail] = [f"[{left_out} lines left out]"]
    return "\n".join(line.rstrip() for line in shown)


def _fitting(lines: list[str], characters: int) -> int:
    """How many of the first lines fit into so many characters."""
    used = 0
    for number, line in enumerate(lines):
        used += len(line) + 1
        if used > characters:
            return number
    return len(lines)


def _clean(line: str) -> str:
    """One line without control, format, surrogate and unassigned characters; every kind of space becomes a space."""
    return "".join(
        character if character.isprintable() else " " if character.isspace() else ""
        for character in line.replace("\t", "    ")
    ).rstrip()


def _bounded(line: str, characters: int) -> str:
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _evidence(check: Check | None) -> Mapping[str, str]:
    """A comparison's evidence in words, every known key present; "" for what the judge did not record."""
    evidence = _flat(check)
    for key in ("max_rel_error", "tolerance_used"):  # 0 where zero is expected; below 1 where another rule decided
        value = evidence.get(key)
        if isinstance(value, float) and value <= (1.0 if key == "tolerance_used" else 0.0):
            del evidence[key]
    return {key: _value(evidence[key]) if evidence.get(key) is not None else "" for key in sorted(_COMPARISON_KEYS)}


def _anatomy(check: Check | None) -> Mapping[str, JsonValue] | None:
    """Where and how the output is wrong (`kbenv.sandbox.judge.anatomy`); None for what the judge did not record.

    The judge wrote all of it, and its words are the template's: there is nothing of a submission's in it but numbers.
    """
    anatomy = check.evidence.get("anatomy") if check is not None and check.stage is Stage.STANDARD else None
    return anatomy if isinstance(anatomy, dict) and anatomy.keys() >= _ANATOMY_KEYS else None


def _further(check: Check | None) -> Mapping[str, str]:
    """The rest of a check's evidence; a submission may have chosen the words of an error."""
    return {
        _value(key): QUOTE_PREFIX + _value(value) for key, value in _flat(check).items() if key not in _COMPARISON_KEYS
    }


def _flat(check: Check | None) -> dict[str, JsonValue]:
    """A check's evidence with the parts of its first mismatch beside the rest."""
    evidence = dict(check.evidence) if check is not None else {}
    for key in _FOR_PEOPLE:
        evidence.pop(key, None)
    first = evidence.pop("first_mismatch", None)
    return evidence | first if isinstance(first, dict) else evidence


def _value(value: JsonValue) -> str:
    """A piece of evidence on one line. The judge wrote it, but a submission may have chosen the words in it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _bounded(_clean(" ".join(_ESCAPE.sub("", text).splitlines())), VALUE_CHARACTERS)
