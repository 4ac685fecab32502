"""The roles of the skills agent, each a function with a prompt of its own (prompts/skills_*.j2).

The extractor asks nobody: what it finds decides which skills are retrieved, and must be the same every time. Planner
and diagnoser ask the model for a decision and for a cause; the answers of writer and repairer are judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kbenv.agents import Message, Turn
from kbenv.agents.skills.feature import Feature, Features, extract_features
from kbenv.agents.skills.library import Skill, read_kernel
from kbenv.agents.skills.memory import Memory
from kbenv.agents.stopping import CountedModel
from kbenv.prompts import render

_REFERENCE = re.compile(r"^## Reference\n+```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def extract(task: str, base: Turn) -> dict[str, Feature]:
    """The extractor: features of the problem in the prompt `task`, and of the right answer `base` and its run."""
    reference = _REFERENCE.search(task)
    return extract_features(reference.group(1) if reference else "", base.code, base.verdict)


def plan(
    model: CountedModel, skills: Sequence[Skill], features: Features, base: Turn, memory: Memory, sample: int
) -> Skill | None:
    """The planner: which of the retrieved skills comes next. It is asked only where there is a choice.

    Returns:
        The skill that it names first; the first retrieved one where it names none; None where nothing applies.
    """
    if len(skills) < 2:
        return skills[0] if skills else None
    values = {"skills": skills, "features": features, "base": base, "moves": memory.moves}
    question = [Message("user", render("skills_plan.j2", **values).strip())]
    said = model.query(question, sample=sample, purpose="plan").text
    named = {skill.id: match.start() for skill in skills if (match := re.search(rf"\b{skill.id}\b", said))}
    return min(skills, key=lambda skill: named.get(skill.id, len(said) + skills.index(skill)))


def write(
    task: Sequence[Message], base: Turn, skill: Skill | None, features: Features, memory: Memory
) -> list[Message]:
    """The writer's conversation: the fastest right answer, the skill to apply and its example; an idea of its own where
    there is no skill."""
    values = {"task": task[-1].content, "base": base, "skill": skill, "features": features, "moves": memory.moves}
    pair = {} if skill is None else {"before": read_kernel(skill.pair.before), "after": read_kernel(skill.pair.after)}
    return [*task[:-1], Message("user", render("skills_write.j2", pair=pair, **values).strip())]


def diagnose(model: CountedModel, task: Sequence[Message], failed: Turn, earlier: Sequence[str], sample: int) -> str:
    """The diagnoser: why an answer failed, in the model's words; `earlier` are those on the answers before it."""
    question = render("skills_diagnose.j2", task=task[-1].content, turn=failed, earlier=earlier).strip()
    return model.query([Message("user", question)], sample=sample, purpose="diagnosis").text.strip()


def repair(
    task: Sequence[Message], failed: Turn, diagnosis: str, skill: Skill | None, base: Turn | None
) -> list[Message]:
    """The repairer's conversation: the failed answer, what became of it, and the diagnosis."""
    values = {"turn": failed, "diagnosis": diagnosis, "skill": skill, "base": base}
    said = failed.answer.strip() or "(no answer)"
    return [*task, Message("assistant", said), Message("user", render("skills_repair.j2", **values).strip())]
