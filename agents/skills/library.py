"""The library of optimisation skills (long-term memory): YAML files beside this one, and which of them fit an answer.

A skill says when it applies (in features), what to do, how, and what to expect, and shows it by a pair of answers to
one of our own problems, before and after. `benchmarks/skills.py` measures the pairs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kbenv.agents.skills.feature import Feature, Features
from kbenv.errors import UsageError
from kbenv.record import first_error

FOLDER = Path(__file__).parent
KERNELS = FOLDER / "kernels"
SHOWN = FOLDER / "shown.json"
"""What `benchmarks/skills.py` measured of each pair; a skill that is not in it was not measured yet."""
MOST_SKILLS = 3


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Condition(_Model):
    """On one feature; exactly one of the tests. An absent feature meets no condition."""

    equals: bool | int | str | None = None
    one_of: tuple[str, ...] | None = None
    at_least: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _one_test(self) -> Condition:
        if len(self.model_fields_set) != 1:
            raise ValueError("a condition is one of equals, one_of, at_least, below")
        return self

    def holds(self, value: Feature | None) -> bool:
        """Whether the feature's value meets it; None (absent) never does."""
        if value is None:
            return False
        if self.equals is not None:
            return type(value) is type(self.equals) and value == self.equals
        if self.one_of is not None:
            return value in self.one_of
        if isinstance(value, str):
            return False
        return value >= self.at_least if self.at_least is not None else value < (self.below or 0.0)


Conditions = Mapping[str, Condition]


class Case(_Model):
    """An answer to one of our problems, and features that its run has; with the source they decide."""

    problem: str
    kernel: str = Field(description="a file of `kernels/`, without .py")
    measured: Mapping[str, bool | int | float | str] = {}
    because: str | None = None


class Pair(_Model):
    """The same problem before and after the skill was applied, and features of the two runs."""

    problem: str
    before: str
    after: str
    measured: Mapping[str, bool | int | float | str] = Field({}, description="of the run before")
    measured_after: Mapping[str, bool | int | float | str] = Field({}, description="where it differs after")


class Skill(_Model):
    """One optimisation.

    Attributes:
        id: its name.
        title: what it does, in a few words.
        when: all of these must hold.
        unless: none of these may.
        method: what changes, and why that is faster.
        apply: the steps, for the writer.
        effect: what to expect, and of what.
        gain: 3 where it usually decides, 2, 1 where it gives some percent.
        pair: the example; `when` holds for its before with what is measured there, and `unless` does not; after it the
            skill does not apply.
        counter: a case in which the skill does not apply.
        shown: what its pair has shown, and where; None where it was not measured. Of `SHOWN`.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: str
    when: Conditions = Field(min_length=1)
    unless: Conditions = {}
    method: str
    apply: str
    effect: str
    gain: Annotated[int, Field(ge=1, le=3)]
    pair: Pair
    counter: Case
    shown: str | None = None

    def applies(self, features: Features) -> bool:
        """Whether its preconditions hold."""
        return all(test.holds(features.get(name)) for name, test in self.when.items()) and not any(
            test.holds(features.get(name)) for name, test in self.unless.items()
        )


@cache
def load_library() -> tuple[Skill, ...]:
    """Every skill, by id.

    Raises:
        UsageError: PyYAML is not installed, or a file does not follow the format.
    """
    skills: dict[str, Skill] = {}
    shown = _read_shown()
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in _read(path):
            try:
                skill = Skill.model_validate(entry)
            except ValidationError as e:
                raise UsageError(f"{path}: expected a skill; found {first_error(e)}") from e
            if skill.id in skills:
                raise UsageError(f"{path}: there are two skills of the name {skill.id}")
            skills[skill.id] = skill.model_copy(update={"shown": shown.get(skill.id)})
    return tuple(skills[name] for name in sorted(skills))


def retrieve(
    features: Features,
    *,
    without: Collection[str] = (),
    most: int = MOST_SKILLS,
    library: tuple[Skill, ...] | None = None,
) -> tuple[Skill, ...]:
    """The skills that apply, the likeliest gain first, then the most specific; `without` those ids."""
    skills = load_library() if library is None else library
    fitting = [skill for skill in skills if skill.id not in without and skill.applies(features)]
    return tuple(sorted(fitting, key=lambda skill: (-skill.gain, -len(skill.when), skill.id))[:most])


def read_kernel(name: str) -> str:
    """The source of one of the library's answers."""
    return (KERNELS / f"{name}.py").read_text(encoding="utf-8")


def _read_shown() -> dict[str, str]:
    """Of the pairs that have shown their effect: how fast, how much memory, where."""
    if not SHOWN.exists():
        return {}
    measured = json.loads(SHOWN.read_text(encoding="utf-8"))
    return {
        skill: f"{told['effect']}{', ' + told['memory'] + ' memory' if told['memory'] else ''} ({told['where']})"
        for skill, told in measured.items()
        if told["shows"] == "yes"
    }


def _read(path: Path) -> list[Any]:
    try:
        import yaml
    except ImportError as e:
        raise UsageError("the skills agent needs PyYAML: pip install 'kbenv[skills]'") from e
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(entries, list):
        raise UsageError(f"{path}: expected a list of skills")
    return entries
