"""How answers are drawn: presets, and a table of what models accept.

litellm knows which parameters a provider takes, and refuses some values; the table adds what it does not say, model by
model: bounds of the temperature, models that ignore one, and which efforts of reasoning there are. What both say was
compared with litellm 1.110 (`litellm.get_supported_openai_params`, `litellm.utils.get_optional_params` and its list of
models) in November 2026, the bounds with the providers' API references as far as litellm repeats them. Both must agree:
what either refuses is not sent. Where a model is not in the table, litellm alone decides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from pydantic import JsonValue

from kbenv.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """What is asked of a model beside the conversation; None leaves the provider's default.

    Attributes:
        max_tokens: most tokens of one answer, reasoning included where the provider counts it.
        reasoning_effort: "minimal", "low", "medium", "high" and whatever else a model has.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None


GREEDY_TEMPERATURE = 0.0
SAMPLED_TEMPERATURE = 0.8
PRESETS = MappingProxyType(
    {
        "default": Sampling(),
        "greedy": Sampling(temperature=GREEDY_TEMPERATURE),
        "sampled": Sampling(temperature=SAMPLED_TEMPERATURE),
    }
)
"""`default`: what the provider does, its reasoning included. `greedy`: the likeliest answer, once. `sampled`: for n
independent answers; a model that takes no temperature draws at its own."""


@dataclass(frozen=True)
class Accepts:
    """What models whose name (in lower case) matches `pattern` accept.

    Attributes:
        temperature: its bounds; None where it is refused or ignored.
        top_p: whether it is taken.
        efforts: of reasoning; empty where there is no such choice.
        effort_fixes_temperature: with an effort other than "none" no temperature may be given.
    """

    pattern: str
    temperature: tuple[float, float] | None = (0.0, 2.0)
    top_p: bool = True
    efforts: tuple[str, ...] = ()
    effort_fixes_temperature: bool = False


_OPENAI = ("none", "low", "medium", "high", "xhigh")
TABLE: tuple[Accepts, ...] = (
    Accepts("*gpt-5-chat*"),
    Accepts("*gpt-5.[1-4]*", efforts=_OPENAI, effort_fixes_temperature=True),
    Accepts("*gpt-5.*", None, top_p=False, efforts=_OPENAI),
    Accepts("*gpt-5*", None, top_p=False, efforts=("minimal", "low", "medium", "high")),
    Accepts("*gpt-6*", None, top_p=False, efforts=(*_OPENAI, "max")),
    Accepts("*gpt-oss*", efforts=("low", "medium", "high")),
    Accepts("*o1-mini*", None, top_p=False),
    Accepts("*o1*", None, top_p=False, efforts=("low", "medium", "high")),
    Accepts("*o3*", None, top_p=False, efforts=("low", "medium", "high")),
    Accepts("*o4-mini*", None, top_p=False, efforts=("low", "medium", "high")),
    Accepts("*claude*", (0.0, 1.0), efforts=("low", "medium", "high", "xhigh", "max"), effort_fixes_temperature=True),
    Accepts("*gemini-2.5-pro*", efforts=("minimal", "low", "medium", "high")),
    Accepts("*gemini-2.5*", efforts=("disable", "minimal", "low", "medium", "high")),
    Accepts("*gemini-3*", efforts=("minimal", "low", "medium", "high")),
    Accepts("*gemini*"),
    Accepts("*deepseek-reasoner*", None, top_p=False),
    Accepts("*deepseek-r1*"),
    Accepts("*grok-3-mini*", efforts=("low", "high")),
    Accepts("*grok*", efforts=("low", "medium", "high")),
    Accepts("*magistral*", (0.0, 1.5), efforts=("low", "medium", "high")),
    Accepts("*mistral*", (0.0, 1.5)),
    Accepts("*command*", (0.0, 1.0)),
)


def accepted_by(model: str) -> Accepts | None:
    """The first row of `TABLE` for `model`; None where there is none.

    Only the last part of the name is looked at: "azure/o3-deployment" is an o3, "together/org/model" is "model".
    """
    name = model.lower().rsplit("/", 1)[-1]
    return next((row for row in TABLE if fnmatchcase(name, row.pattern)), None)


def get_sampling(preset: str, **chosen: float | int | str | None) -> Sampling:
    """The preset `preset` with what was chosen by itself (None: not chosen) in its place.

    Raises:
        UsageError: no such preset.
    """
    if preset not in PRESETS:
        raise UsageError(f"the sampling must be one of {', '.join(PRESETS)}; found {preset!r}")
    return replace(PRESETS[preset], **{name: value for name, value in chosen.items() if value is not None})  # type: ignore[arg-type]


def settings_for(model: str, sampling: Sampling, supported: Collection[str] | None) -> dict[str, JsonValue]:
    """What is sent to `model` for `sampling`.

    Args:
        supported: the parameters that litellm says the provider takes; None where it does not know.

    Raises:
        UsageError: the model does not accept it. A temperature that is that of the preset `sampled` is left out
            instead: such a model draws at random anyway.
    """
    row = accepted_by(model)
    accepts = row or Accepts("*", efforts=("none", "minimal", "low", "medium", "high"))
    sent: dict[str, JsonValue] = {}
    fixed = accepts.effort_fixes_temperature and sampling.reasoning_effort not in (None, "none")
    if sampling.temperature is not None:
        if accepts.temperature is not None and not fixed and _takes(supported, "temperature"):
            low, high = accepts.temperature
            if not low <= sampling.temperature <= high:
                raise UsageError(
                    f"{model} takes a temperature from {low:g} to {high:g}; found {sampling.temperature:g}"
                )
            sent["temperature"] = sampling.temperature
        elif sampling.temperature != SAMPLED_TEMPERATURE:
            reason = "with a reasoning effort" if fixed and accepts.temperature is not None else "at all"
            raise UsageError(f"{model} takes no temperature {reason}: leave out --temperature and --sampling greedy")
    if sampling.top_p is not None:
        if not accepts.top_p or not _takes(supported, "top_p"):
            raise UsageError(f"{model} takes no top_p: leave out --top-p")
        sent["top_p"] = sampling.top_p
    if sampling.reasoning_effort is not None:
        if sampling.reasoning_effort not in accepts.efforts or not _takes(supported, "reasoning_effort"):
            efforts = ", ".join(accepts.efforts) if _takes(supported, "reasoning_effort") else ""
            raise UsageError(
                f"{model} has no reasoning effort {sampling.reasoning_effort!r}: "
                + (f"choose one of {efforts}" if efforts else "leave out --reasoning-effort")
            )
        sent["reasoning_effort"] = sampling.reasoning_effort
    if sampling.max_tokens is not None:
        newer = supported is not None and "max_completion_tokens" in supported and "max_tokens" not in supported
        sent["max_completion_tokens" if newer else "max_tokens"] = sampling.max_tokens
    return sent


def _takes(supported: Collection[str] | None, name: str) -> bool:
    return supported is None or name in supported
