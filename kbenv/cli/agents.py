"""The options that choose agents, models, prompts and budgets, and what they ask for."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbenv.errors import UsageError

if TYPE_CHECKING:
    from kbenv.agents import Model
    from kbenv.agents.catalog import Kind, Settings
    from kbenv.agents.model import LitellmModel, Throttle
    from kbenv.evaluator import Evaluator
    from kbenv.pool import EvaluatorPool
    from kbenv.problems.problem import Problem
    from kbenv.prompt import PromptOptions

AGENT_NAMES = ("single-shot", "multi-turn", "search", "reflect", "skills")
DEFAULT_AGENT = "single-shot"
REPLAY_PREFIX = "replay:"
SHIPPED_REPLAY = Path("examples") / "replay"
AT_ONCE = 8
"""Requests at once to a provider, unless told otherwise."""
CONTEXT_ANSWERS = 3
AUTO = "auto"

_SETTINGS = {
    "n": "n", "turns": "turns", "tokens": "tokens", "target_speedup": "stop", "patience": "stop", "context": "context",
    "context_answers": "context", "context_tokens": "context", "selection": "selection", "parents": "parents",
    "children": "children", "repairs": "repairs",
}  # fmt: skip
"""Of options that not every agent has a use for, the setting that they are part of."""

OpenModel = Callable[[str], "Model"]


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """Adds agents, models, budgets and sampling."""
    parser.add_argument(
        "--agent", action="append", metavar="NAME",
        help=f"{', '.join(AGENT_NAMES)}, or yours as file.py:Name or package.module:Name (default: {DEFAULT_AGENT}); "
        "may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--model", required=True, action="append", metavar="NAME",
        help="a litellm model name such as openai/gpt-4o (its key from the environment), or replay:DIR for recorded "
        f"answers (replay: alone for those in {SHIPPED_REPLAY}); may be given several times",
    )  # fmt: skip
    group = parser.add_argument_group("budget of a problem")
    group.add_argument(
        "-n", type=int, metavar="N",
        help="independent samples (default: 5 for single-shot, 1 for multi-turn, reflect and skills)",
    )  # fmt: skip
    group.add_argument("--turns", type=int, metavar="T", help="multi-turn: most answers of a sample (default: 10)")
    group.add_argument(
        "--calls", type=int, metavar="N",
        help="most calls of the model, whatever the agent: so agents are compared at equal calls",
    )  # fmt: skip
    group.add_argument("--tokens", type=int, metavar="N", help="no further call of a conversation after so many tokens")
    group.add_argument("--target-speedup", type=float, metavar="X", help="enough once an answer is this fast")
    group.add_argument(
        "--patience", type=int, metavar="N", help="enough after N answers that did not improve the best credited one"
    )
    group = parser.add_argument_group("what the agent does")
    group.add_argument(
        "--context", choices=("full", "last", "best-last", "summary"),
        help="what of the conversation is sent again: all (default), the last K answers, those and the best, or those "
        "and the model's summary of the others",
    )  # fmt: skip
    group.add_argument("--context-answers", type=int, metavar="K", help="see --context (default: 3)")
    group.add_argument(
        "--context-tokens", type=int, metavar="N",
        help="send at most so many tokens: the oldest answers are left out (default: what the model's window holds)",
    )  # fmt: skip
    group.add_argument(
        "--feedback", default="e", metavar="WHICH",
        help="what it reads of its answers: e (what became of them, default), p (a profile of those that are right), "
        "e,p or none",
    )  # fmt: skip
    group.add_argument(
        "--selection", choices=("beam", "evolution"), help="search: how parents are chosen (default: beam)"
    )
    group.add_argument("--parents", type=int, metavar="N", help="search: answers refined at a time (default: 2)")
    group.add_argument("--children", type=int, metavar="N", help="search: refinements of each (default: 2)")
    group.add_argument(
        "--repairs", type=int, metavar="N", help="reflect, skills: failures before another approach (default: 3)"
    )
    group = parser.add_argument_group("model")
    group.add_argument(
        "--sampling", choices=("default", "greedy", "sampled"), default="default",
        help="default: the provider's own; greedy: temperature 0; sampled: temperature 0.8, where it is accepted",
    )  # fmt: skip
    group.add_argument("--temperature", type=float, metavar="X", help="default: the provider's")
    group.add_argument("--top-p", type=float, metavar="X", help="default: the provider's")
    group.add_argument("--reasoning-effort", metavar="WORD", help="such as low, medium, high; default: the provider's")
    group.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of an answer; default: the provider's")
    group.add_argument(
        "--stream", action="store_true", help="ask for answers in pieces (proxies close silent requests)"
    )
    group.add_argument("--tool", action="store_true", help="let the model hand in its source by a tool call")
    group.add_argument(
        "--at-once", metavar="N",
        help=f"requests at once to a provider (default: {AT_ONCE}); also by provider: openai=4,anthropic=2",
    )  # fmt: skip
    group.add_argument(
        "--max-cost", type=float, metavar="USD", help="ask nothing more once answers have cost this much"
    )
    group.add_argument("--max-calls", type=int, metavar="N", help="ask nothing more after so many calls in all")
    add_prompt_options(parser)


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    """Adds what a prompt may hold beside the task."""
    group = parser.add_argument_group("prompt")
    group.add_argument(
        "--shots", choices=("zero", "one", "few"), default="zero",
        help="worked examples: none (default), the one nearest to the problem, or a few",
    )  # fmt: skip
    group.add_argument(
        "--hardware", metavar="NAME",
        help="facts about a GPU, such as H100, or auto for the device that judges (default: none)",
    )  # fmt: skip
    group.add_argument("--concepts", action="store_true", help="say what decides the speed on such a device")
    group.add_argument(
        "--view",
        choices=("full", "blind"),
        help="blind: do not show how inputs are drawn (default: as the problem says)",
    )


def check_agent_options(arguments: argparse.Namespace) -> None:
    """Raises UsageError for numbers that make no sense, and for options that no chosen agent has a use for."""
    arguments.agent = list(dict.fromkeys(arguments.agent or [DEFAULT_AGENT]))
    arguments.model = list(dict.fromkeys(arguments.model))
    counts = ("n", "turns", "calls", "tokens", "patience", "context_answers", "context_tokens", "parents", "children",
              "repairs", "max_tokens", "max_calls")  # fmt: skip
    for name in counts:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UsageError(f"{_option(name)} must be at least 1; found {value}")
    for name in ("max_cost", "target_speedup"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise UsageError(f"{_option(name)} must be above 0; found {value}")
    if arguments.temperature is not None and not 0 <= arguments.temperature < math.inf:
        raise UsageError(f"--temperature must be 0 or more; found {arguments.temperature}")
    if arguments.top_p is not None and not 0 < arguments.top_p <= 1:
        raise UsageError(f"--top-p must be above 0 and at most 1; found {arguments.top_p}")
    parse_feedback(arguments.feedback)
    kinds = choose_agents(arguments)
    for name, setting in _SETTINGS.items():
        if getattr(arguments, name) is not None and not any(setting in kind.uses for kind in kinds):
            raise UsageError(f"{_option(name)} belongs to other agents than {', '.join(arguments.agent)}")
    if arguments.calls is not None and arguments.n is not None and arguments.n > arguments.calls:
        raise UsageError(f"-n {arguments.n} samples need more than --calls {arguments.calls}")


def choose_agents(arguments: argparse.Namespace) -> list[Kind]:
    """The agents that were asked for. Raises UsageError for one that there is not."""
    from kbenv.agents.catalog import get_agent

    return [get_agent(name) for name in arguments.agent]


def parse_feedback(text: str) -> tuple[bool, bool]:
    """Whether execution feedback and a profile are given. Raises UsageError."""
    words = {word.strip().lower() for word in text.split(",")}
    if words == {"none"}:
        return False, False
    if not words <= {"e", "p"}:
        raise UsageError(f"--feedback must be e, p, e,p or none; found {text!r}")
    return "e" in words, "p" in words


def agent_settings(arguments: argparse.Namespace, service: LitellmModel | None, at_once: int) -> Settings:
    """What the agents are made with; without a service tokens are estimated, and no window is known."""
    from kbenv.agents.catalog import Settings
    from kbenv.agents.context import Context, estimate_tokens
    from kbenv.agents.stopping import Stop

    chosen = {name: getattr(arguments, name) for name in ("selection", "parents", "children", "repairs")}
    return Settings(
        n=arguments.n,
        turns=arguments.turns,
        calls=arguments.calls,
        tokens=arguments.tokens,
        context=Context(
            arguments.context or "full",
            arguments.context_answers or CONTEXT_ANSWERS,
            arguments.context_tokens or (service.window() if service is not None else None),
            service.count_tokens if service is not None else estimate_tokens,
        ),
        stop=Stop(arguments.target_speedup, arguments.patience),
        at_once=at_once,
        **{name: value for name, value in chosen.items() if value is not None},
    )


@dataclass(frozen=True)
class OpenedModel:
    """A model that was asked for: the problems that it can be asked about, and what opens it for one of them.

    `service` is None for recorded answers.
    """

    name: str
    problems: Sequence[Problem]
    open: OpenModel
    service: LitellmModel | None = None


def open_model(
    arguments: argparse.Namespace, name: str, problems: Sequence[Problem], throttle: Throttle
) -> OpenedModel:
    """The model `name`.

    Raises:
        UsageError: there is no such model or replay, its key is missing, or it does not accept the sampling.
    """
    if not name.startswith(REPLAY_PREFIX):
        model = open_litellm(arguments, name, throttle)
        return OpenedModel(name, problems, lambda problem: model, model)
    from kbenv.agents.replay import has_replay, load_replay

    directory = _replay_directory(name.removeprefix(REPLAY_PREFIX))
    answered = [problem for problem in problems if has_replay(directory, problem.id)]
    if not answered:
        raise UsageError(f"{directory} has recorded answers to none of the {len(problems)} problems asked for")
    if len(answered) < len(problems):
        without = ", ".join(problem.id for problem in problems if problem not in answered)
        print(f"kbenv: no recorded answers, left out: {without}", file=sys.stderr)
    models: dict[str, Model] = {problem.id: load_replay(directory, problem.id, name) for problem in answered}
    return OpenedModel(name, answered, models.__getitem__)


def open_litellm(arguments: argparse.Namespace, name: str, throttle: Throttle) -> LitellmModel:
    """The service's model `name`, with the sampling that the options ask for. Raises UsageError."""
    from kbenv.agents.model import LitellmModel
    from kbenv.agents.sampling import get_sampling

    sampling = get_sampling(
        arguments.sampling,
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        max_tokens=arguments.max_tokens,
        reasoning_effort=arguments.reasoning_effort,
    )
    asks = not getattr(arguments, "dry_run", False)
    model = LitellmModel(
        name, sampling=sampling, stream=arguments.stream, tool=arguments.tool, throttle=throttle, needs_key=asks
    )
    if arguments.max_cost is not None and model.price() is None:
        raise UsageError(f"litellm has no price for {name}, so that --max-cost could not be kept; leave it out")
    return model


def make_throttle(arguments: argparse.Namespace) -> tuple[Throttle, int]:
    """The limits of requests at once, and how many an agent may ask for at once.

    Raises:
        UsageError: --at-once is malformed.
    """
    from kbenv.agents.model import Throttle

    overall, providers = AT_ONCE, {}
    for part in (arguments.at_once or "").split(","):
        if not part.strip():
            continue
        provider, equals, number = part.strip().rpartition("=")
        if not number.isdigit() or int(number) < 1 or (equals and not provider):
            raise UsageError(f"--at-once must be a number, or PROVIDER=N,...; found {arguments.at_once!r}")
        if provider:
            providers[provider] = int(number)
        else:
            overall = int(number)
    return Throttle(overall, providers), max([overall, *providers.values()])


def read_prompt_options(arguments: argparse.Namespace, evaluator: Evaluator | EvaluatorPool | None) -> PromptOptions:
    """What the prompts hold beside the task; `evaluator` is asked for --hardware auto alone.

    Raises:
        UsageError: no facts are known about the GPU that was named.
        SandboxError: --hardware auto, and the machine that judges could not be asked.
    """
    from kbenv.gpu import facts_about
    from kbenv.prompt import PromptOptions

    facts = None
    if arguments.hardware is not None:
        detected = evaluator is not None and arguments.hardware == AUTO
        facts = facts_about(evaluator.machine()[0] if evaluator is not None and detected else arguments.hardware)
    return PromptOptions(shots=arguments.shots, hardware=facts, concepts=arguments.concepts, view=arguments.view)


def agent_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """What of these options a run must have in common with itself when it goes on: all but budgets of the whole run."""
    keys = (
        "n", "turns", "calls", "tokens", "target_speedup", "patience", "context", "context_answers", "context_tokens",
        "feedback", "selection", "parents", "children", "repairs", "sampling", "temperature", "top_p",
        "reasoning_effort", "max_tokens", "tool", "shots", "hardware", "concepts", "view",
    )  # fmt: skip
    return {key: getattr(arguments, key) for key in keys}


def _option(name: str) -> str:
    return "-n" if name == "n" else f"--{name.replace('_', '-')}"


def _replay_directory(text: str) -> Path:
    if text:
        if not Path(text).is_dir():
            raise UsageError(f"expected a directory of recorded answers after {REPLAY_PREFIX}; {text} is none")
        return Path(text)
    shipped = [SHIPPED_REPLAY, Path(__file__).resolve().parents[2] / SHIPPED_REPLAY]
    for directory in shipped:
        if directory.is_dir():
            return directory
    raise UsageError(
        f"{REPLAY_PREFIX} alone means {SHIPPED_REPLAY} of a checkout, which is not there; name a directory"
    )
