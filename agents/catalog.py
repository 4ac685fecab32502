"""The agents by name, and one of a user's own: what each needs to be made, and the environment that it plays.

`Settings.calls` is the one budget that all of them have in common: with equal calls a model's repeated sampling,
refinement and search can be compared.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from types import MappingProxyType, ModuleType
from typing import Literal

from kbenv.agents import Agent, Model
from kbenv.agents.context import Context
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.reflect import Reflect
from kbenv.agents.search import Search, Selection
from kbenv.agents.single_shot import SingleShot
from kbenv.agents.skills import Skills
from kbenv.agents.stopping import Stop
from kbenv.errors import UsageError

DEFAULT_CALLS = 10
DEFAULT_SHOTS = 5

Episode = Literal["single", "multi"]


@dataclass(frozen=True)
class Settings:
    """What agents are made with; each takes what it has a use for. None leaves an agent's own default.

    Attributes:
        n: independent samples of a problem.
        turns: most answers of a conversation.
        calls: most calls of the model for one problem, whatever they are for.
        tokens: no further call in a conversation or a search once it has used so many.
        at_once: independent answers asked for at the same time.
        repairs: failures of a reflecting agent, or of one with skills, in a row before it changes its approach.
    """

    n: int | None = None
    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    context: Context = field(default_factory=Context)
    stop: Stop = field(default_factory=Stop)
    at_once: int = 1
    selection: Selection = "beam"
    parents: int = 2
    children: int = 2
    repairs: int = 3


@dataclass(frozen=True)
class Kind:
    """One agent.

    Attributes:
        make: the agent for a model.
        answers: most answers to one problem.
        episode: whether it plays `SingleTurnEnv` or `MultiTurnEnv`.
        uses: the settings that it has a use for beside `calls`.
        one_answer: whether each of its samples is a single answer.
    """

    name: str
    make: Callable[[Model, Settings], Agent]
    answers: Callable[[Settings], int]
    episode: Episode
    uses: frozenset[str]
    one_answer: bool = False

    def turns(self, settings: Settings) -> int:
        """Most answers of one episode of its environment."""
        return 1 if self.episode == "single" else _turns(settings)


def _shots(settings: Settings) -> int:
    return settings.n or settings.calls or DEFAULT_SHOTS


def _turns(settings: Settings) -> int:
    return settings.turns or (settings.calls or DEFAULT_CALLS) // (settings.n or 1) or 1


def _calls(settings: Settings) -> int:
    """Of each sample, where `calls` is for all of them."""
    return (settings.calls or DEFAULT_CALLS * (settings.n or 1)) // (settings.n or 1) or 1


def _single_shot(model: Model, settings: Settings) -> Agent:
    return SingleShot(model, n=_shots(settings), at_once=settings.at_once)


def _multi_turn(model: Model, settings: Settings) -> Agent:
    calls = None if settings.calls is None else _calls(settings)
    return MultiTurn(
        model, _turns(settings), settings.n or 1,
        context=settings.context, stop=settings.stop, calls=calls, tokens=settings.tokens,
    )  # fmt: skip


def _search(model: Model, settings: Settings) -> Agent:
    return Search(
        model, settings.calls or DEFAULT_CALLS,
        selection=settings.selection, parents=settings.parents, children=settings.children, context=settings.context,
        stop=settings.stop, tokens=settings.tokens, at_once=settings.at_once,
    )  # fmt: skip


def _reflect(model: Model, settings: Settings) -> Agent:
    return Reflect(
        model, _calls(settings), settings.n or 1,
        repairs=settings.repairs, context=settings.context, stop=settings.stop, tokens=settings.tokens,
    )  # fmt: skip


def _skills(model: Model, settings: Settings) -> Agent:
    return Skills(
        model, _calls(settings), settings.n or 1, repairs=settings.repairs, stop=settings.stop, tokens=settings.tokens
    )


_SHARED = frozenset({"tokens", "context", "stop"})

AGENTS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("single-shot", _single_shot, _shots, "single", frozenset({"n", "at_once"}), one_answer=True),
            Kind(
                "multi-turn", _multi_turn, lambda settings: _turns(settings) * (settings.n or 1), "multi",
                _SHARED | {"n", "turns"},
            ),
            Kind(
                "search", _search, lambda settings: settings.calls or DEFAULT_CALLS, "single",
                _SHARED | {"at_once", "selection", "parents", "children"}, one_answer=True,
            ),
            Kind(
                "reflect", _reflect, lambda settings: _calls(settings) * (settings.n or 1), "single",
                _SHARED | {"n", "repairs"},
            ),
            Kind(
                "skills", _skills, lambda settings: _calls(settings) * (settings.n or 1), "single",
                frozenset({"tokens", "stop", "n", "repairs"}),
            ),
        )
    }
)  # fmt: skip


def get_agent(name: str) -> Kind:
    """The agent `name`: one of `AGENTS`, or one of the user's own, as "package.module:Name" or "path/file.py:Name".

    The name stands for something that is called with a model and returns an `Agent`, usually a class. It plays
    `MultiTurnEnv`, or `SingleTurnEnv` where it has an attribute `episode = "single"`.

    Raises:
        UsageError: there is none, or its module cannot be imported.
    """
    if name in AGENTS:
        return AGENTS[name]
    place, colon, attribute = name.rpartition(":")
    if not colon or not place:
        raise UsageError(
            f"the agent must be one of {', '.join(AGENTS)}, or yours as package.module:Name or path/file.py:Name; "
            f"found {name!r}"
        )
    module = _load(place)
    factory: Callable[[Model], Agent] | None = getattr(module, attribute, None)
    if not callable(factory):
        raise UsageError(f"{place} has no {attribute} that can be called with a model; found {factory!r}")
    episode: Episode = "single" if getattr(factory, "episode", "multi") == "single" else "multi"
    return Kind(
        name, lambda model, _: factory(model), lambda settings: settings.calls or DEFAULT_CALLS, episode,
        frozenset({"turns"} if episode == "multi" else ()),
    )  # fmt: skip


def _load(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (ImportError, OSError) as error:
        raise UsageError(f"the agent's module {place} cannot be imported: {error}") from error
    except Exception as error:  # the boundary to the user's code, which may raise anything
        frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
        where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if len(frames) > 1 else ""
        raise UsageError(f"the agent's module {place}: {where}{type(error).__name__}: {error}") from error
