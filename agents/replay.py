"""A model that replays recorded answers, chosen by what the last observation says and never by turn number.

A replay directory holds, for each problem, `<problem id>/script.toml` and the answer files that it names. The first
rule that matches decides; with several answers sample i gets answer i modulo their number:

    [[rule]]
    when = "COMPILE_ERROR"      # searched in the last user message
    task = "CUDA"               # optional: searched in the first user message (the problem's prompt)
    purpose = "summary"         # optional: what the call is for; without it answers that are judged
    answer = ["fixed.md"]

Patterns are Python regular expressions in multi-line mode.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kbenv.agents import ANSWER, Completion, Message
from kbenv.errors import ModelError, UsageError
from kbenv.record import first_error

SCRIPT_NAME = "script.toml"


class _Rule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    when: str
    task: str | None = None
    purpose: str = ANSWER
    answer: tuple[str, ...] = Field(min_length=1)

    @field_validator("when", "task")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    def matches(self, task: str, observation: str, purpose: str) -> bool:
        return bool(
            purpose == self.purpose
            and re.search(self.when, observation, re.MULTILINE)
            and (self.task is None or re.search(self.task, task, re.MULTILINE))
        )


class _Script(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: tuple[_Rule, ...] = Field(min_length=1)


@dataclass(frozen=True)
class ReplayModel:
    """The recorded answers to one problem; costs nothing. Made by `load_replay`."""

    name: str
    directory: Path
    script: _Script

    def query(self, messages: Sequence[Message], *, sample: int = 0, purpose: str = ANSWER) -> Completion:
        """The recorded answer to the last user message.

        Raises:
            ModelError: no rule matches it.
        """
        said = [message.content for message in messages if message.role == "user"]
        for rule in self.script.rule:
            if rule.matches(task=said[0], observation=said[-1], purpose=purpose):
                name = rule.answer[sample % len(rule.answer)]
                return Completion(
                    text=(self.directory / name).read_text(encoding="utf-8"),
                    prompt_tokens=0,
                    completion_tokens=0,
                    cost_usd=0.0,
                    finish_reason="stop",
                )
        wanted = "" if purpose == ANSWER else f' with purpose = "{purpose}"'
        raise ModelError(
            f"{self.directory / SCRIPT_NAME}: no rule{wanted} matches the last observation, which begins "
            f"{said[-1][:80]!r}; add a [[rule]] for it"
        )


def has_replay(directory: Path, problem_id: str) -> bool:
    """Whether the replay directory has answers to the problem."""
    return (directory / problem_id / SCRIPT_NAME).is_file()


def load_replay(directory: Path, problem_id: str, name: str = "replay") -> ReplayModel:
    """The recorded answers to `problem_id` under the replay directory, checked: every answer file is there.

    `name` is what a run records as the model.

    Raises:
        UsageError: no script for the problem, a script that does not follow the format, or an answer file is missing.
    """
    folder = directory / problem_id
    path = folder / SCRIPT_NAME
    try:
        script = _Script.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"no recorded answers to {problem_id}: expected {path} ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        found = first_error(error) if isinstance(error, ValidationError) else error
        raise UsageError(
            f"{path}: expected [[rule]] tables with when, answer and perhaps task; found {found}"
        ) from error
    missing = sorted({name for rule in script.rule for name in rule.answer if not (folder / name).is_file()})
    if missing:
        raise UsageError(f"{path} names answers that are not beside it: {', '.join(missing)}")
    return ReplayModel(name=name, directory=folder, script=script)
