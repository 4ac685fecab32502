"""Trajectories as data: one flat JSON object a turn, and what trainers make of them. See docs/trajectory.md.

Pure functions over what a store holds. Every line has every field, of one type or null, so that the files load as a
Hugging Face dataset; a verdict, which is nested and open, is a string of JSON in one of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from kbenv.problems import check_training
from kbenv.store import StoredCall, StoredTurn

SCHEMA_VERSION = 1
FASTER = 1.1
"""One right answer is preferred over another when it is this many times faster, and their intervals do not meet."""

Line = Mapping[str, Any]
FEATURES: Mapping[str, str] = {
    "schema_version": "int64", "problem": "string", "agent": "string", "model": "string", "sample": "int64",
    "index": "int64", "parents": "list<int64>", "messages": "list<struct<role: string, content: string>>",
    "observation": "string", "answer": "string", "reasoning": "string", "outcome": "string", "finish_reason": "string",
    "code": "string", "feedback": "string", "judged": "bool", "reward": "float64", "status": "string",
    "credited": "bool", "speedup": "float64", "speedup_low": "float64", "speedup_high": "float64",
    "latency_ms": "float64", "reference_latency_ms": "float64", "memory_ratio": "float64", "protocol": "string",
    "precision": "string", "device": "string", "hardware": "string", "verdict": "string", "settings": "string",
    "prompt_tokens": "int64", "completion_tokens": "int64", "reasoning_tokens": "int64", "cached_tokens": "int64",
    "cost_usd": "float64", "attempts": "int64", "seconds": "float64",
}  # fmt: skip
"""Every field of a line and its type; all but the first six may be null."""


def turn_line(turn: StoredTurn, agent: str) -> dict[str, Any]:
    """One line of `trajectories.jsonl`: an answer and, once judged, what became of it."""
    verdict = turn.verdict
    speedup = verdict.speedup if verdict is not None else None
    hardware = verdict.hardware if verdict is not None else None
    line: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "problem": turn.problem,
        "agent": agent,
        "model": turn.model,
        "sample": turn.sample,
        "index": turn.index,
        "parents": list(turn.parents),
        "messages": [{"role": message.role, "content": message.content} for message in turn.messages],
        "observation": turn.observation,
        "answer": turn.answer,
        "reasoning": turn.reasoning,
        "outcome": turn.outcome,
        "finish_reason": turn.finish_reason,
        "code": turn.code,
        "feedback": turn.feedback,
        "judged": turn.judged,
        "reward": turn.reward,
        "status": verdict.status.value if verdict is not None else None,
        "credited": verdict.credited if verdict is not None else None,
        "speedup": speedup.value if speedup is not None else None,
        "speedup_low": speedup.low if speedup is not None else None,
        "speedup_high": speedup.high if speedup is not None else None,
        "latency_ms": verdict.latency_ms if verdict is not None else None,
        "reference_latency_ms": verdict.reference_latency_ms if verdict is not None else None,
        "memory_ratio": verdict.memory.ratio if verdict is not None and verdict.memory is not None else None,
        "protocol": verdict.protocol.name if verdict is not None else None,
        "precision": verdict.protocol.precision if verdict is not None else None,
        "device": hardware.device if hardware is not None else None,
        "hardware": hardware.name if hardware is not None else None,
        "verdict": verdict.model_dump_json() if verdict is not None else None,
        "settings": json.dumps(turn.settings, sort_keys=True),
    }
    return line | _bill(turn)


def ledger_line(call: StoredCall) -> dict[str, Any]:
    """One line of `ledger.jsonl`: what a call was for, what was sent with it, and what it took."""
    names = ("problem", "sample", "index", "model", "purpose", "outcome", "finish_reason")
    return {name: getattr(call, name) for name in names} | {"settings": dict(call.settings)} | _bill(call)


def dataset_card(data_file: str) -> str:
    """A README.md that makes a folder with `data_file` a Hugging Face dataset.

    It declares the fields' types: from data alone they are guessed, block by block, and a field that is null throughout
    the first block and not in a later one is an error there.
    """
    features = "".join(_feature(name, kind) for name, kind in FEATURES.items())
    return (
        f'---\nconfigs:\n- config_name: default\n  data_files: "{data_file}"\n'
        f"dataset_info:\n  features:\n{features}---\n\nTrajectories of kbenv, schema version {SCHEMA_VERSION}.\n"
    )


def to_json(line: Line) -> str:
    """The line as text, with its end."""
    return json.dumps(line, ensure_ascii=False) + "\n"


def to_sft(lines: Iterable[Line], *, min_speedup: float | None = None, best_only: bool = False) -> Iterator[Line]:
    """Conversations that end with a credited answer, for supervised fine-tuning of chat models.

    Args:
        min_speedup: leave out answers that are slower.
        best_only: of each problem the fastest answer alone.

    Yields:
        {"messages": the conversation as it was sent and the answer, "problem", "speedup"}.

    Raises:
        TrainingForbiddenError: the licence of a problem's set restricts training on it.
    """
    lines = _may_train(lines)
    chosen = [line for line in lines if line["credited"] and (min_speedup is None or line["speedup"] >= min_speedup)]
    if best_only:
        best: dict[str, Line] = {}
        for line in chosen:
            if line["problem"] not in best or line["speedup"] > best[line["problem"]]["speedup"]:
                best[line["problem"]] = line
        chosen = list(best.values())
    for line in chosen:
        messages = [*line["messages"], {"role": "assistant", "content": line["answer"]}]
        yield {"messages": messages, "problem": line["problem"], "speedup": line["speedup"]}


def _may_train(lines: Iterable[Line]) -> Iterator[Line]:
    for line in lines:
        check_training(line["problem"])
        yield line


def to_preferences(
    lines: Iterable[Line], *, same: Literal["conversation", "task"] = "conversation", faster: float = FASTER
) -> Iterator[Line]:
    """Pairs of answers to one prompt, the better one chosen: right over wrong, fast over slow.

    An answer is paired with the best one, if that is credited: wrong ones always, right ones when the best is `faster`
    times as fast and the intervals of the two do not meet. What was never judged, and what failed for want of code
    because the service stopped it, is no evidence and is left out.

    Args:
        same: which answers have one prompt: those of equal conversations ("conversation"), or all to one problem, whose
            prompt is then the first conversation of the problem, and an answer its code alone ("task").

    Yields:
        {"prompt", "chosen", "rejected": messages, "problem", "reason": "right" or "fast", "chosen_speedup"}, the form
        that TRL calls conversational. No field is ever null.

    Raises:
        TrainingForbiddenError: as `to_sft`.
    """
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in _may_train(lines):
        if line["status"] is None or line["outcome"] == "filtered":
            continue
        key = json.dumps([line["problem"], line["messages"]]) if same == "conversation" else line["problem"]
        groups[key].append(line)
    for group in groups.values():
        yield from _pairs(group, code_alone=same == "task", faster=faster)


def _pairs(group: Sequence[Line], *, code_alone: bool, faster: float) -> Iterator[Line]:
    right = [line for line in group if line["credited"]]
    if not right:
        return
    best = max(right, key=lambda line: line["speedup"])
    seen = {_answer(best, code_alone)}
    for line in group:
        answer = _answer(line, code_alone)
        if answer is None or answer in seen:
            continue
        seen.add(answer)
        reason = "fast" if line["credited"] else "right"
        if line["credited"] and not (
            best["speedup"] >= faster * line["speedup"] and best["speedup_low"] > line["speedup_high"]
        ):
            continue
        yield {
            "prompt": group[0]["messages"],
            "chosen": [{"role": "assistant", "content": _answer(best, code_alone)}],
            "rejected": [{"role": "assistant", "content": answer}],
            "problem": best["problem"],
            "reason": reason,
            "chosen_speedup": best["speedup"],
        }


def _answer(line: Line, code_alone: bool) -> str | None:
    if not code_alone:
        return str(line["answer"])
    return None if line["code"] is None else f"```python\n{line['code']}```"


def _feature(name: str, kind: str) -> str:
    """One field as a dataset card declares it."""
    if kind == "list<int64>":
        return f"  - name: {name}\n    list: int64\n"
    if kind.startswith("list<struct"):
        parts = "".join(f"    - name: {part}\n      dtype: string\n" for part in ("role", "content"))
        return f"  - name: {name}\n    list:\n{parts}"
    return f"  - name: {name}\n    dtype: {kind}\n"


def _bill(call: StoredCall) -> dict[str, Any]:
    names = (
        "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cost_usd", "attempts", "seconds",
    )  # fmt: skip
    return {name: getattr(call, name) for name in names}
