"""`kbenv run --dry-run`: how many calls, tokens and dollars a run would take, before anything is asked.

Prompts are counted by litellm. What answers and feedback will hold is not known beforehand: an answer is taken to have
as many tokens as `--max-tokens` allows, or `ANSWER_TOKENS` where nothing is said, and feedback to be as long as it is
shown at most, of `CHARACTERS_A_TOKEN`. Only where no feedback is read is the result a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kbenv.agents.context import CHARACTERS_A_TOKEN
from kbenv.cli.agents import parse_feedback
from kbenv.feedback import ACCESS_CHARACTERS, DETAIL_CHARACTERS, OUTPUT_CHARACTERS

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.cli.run import Run

ANSWER_TOKENS = 4000
JUDGE_CHARACTERS = 2000
"""Of feedback: the judge's own lines, the anatomy of a mismatch and what a turn ends with among them."""
PROFILE_CHARACTERS = 6000
ROLE_CHARACTERS = 3000
"""Of a prompt of the skills agent: features, moves and what is asked, beside a skill and its pair."""


def print_estimate(console: Console, runs: Sequence[Run]) -> int:
    """Prints a line for each run, and returns the exit code."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("agent", "model", "problems", "calls", "prompt tokens", "answer tokens", "cost"):
        table.add_column(name, overflow="fold")
    total: float | None = 0.0
    for run in runs:
        calls, prompt, answer = estimate(run)
        cost = _cost(run, prompt, answer)
        total = None if total is None or cost is None else total + cost
        cells = (
            run.kind.name, run.model.name, str(len(run.model.problems)), f"{calls:,}", f"{prompt:,}", f"{answer:,}",
            "unknown" if cost is None else f"${cost:.2f}",
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print()
    services = {run.model.name: run.model.service for run in runs if run.model.service is not None}
    for name, service in services.items():
        sent = ", ".join(f"{key} {value}" for key, value in service.settings.items()) or "the provider's defaults"
        console.print(f"sent to {name}: {sent}", markup=False)
    asking = [run for run in runs if run.model.service is not None]
    limited = all(_limit(run) is not None for run in asking)
    if not limited:
        console.print(
            f"answers are taken to have {ANSWER_TOKENS:,} tokens, which reasoning can exceed many times over: "
            "--max-tokens bounds them, --max-cost the whole",
            markup=False,
        )
    reading = [run for run in runs if not _reads_nothing(run)]
    if reading:
        longest = max(feedback_tokens(run) for run in reading)
        console.print(
            f"an earlier answer is taken to be sent again with feedback of {longest:,} tokens, the most that is shown "
            f"of a failure at {CHARACTERS_A_TOKEN} characters a token",
            markup=False,
        )
    bounded = limited and all(map(_reads_nothing, asking))
    words = "an unknown cost" if total is None else f"{'at most' if bounded else 'about'} ${total:.2f}"
    console.print(f"{words}; nothing was asked", markup=False)
    return 0


def estimate(run: Run) -> tuple[int, int, int]:
    """Calls, tokens of prompts and tokens of answers, of all problems together, as many as there may be."""
    from kbenv.agents import Message
    from kbenv.prompt import render_prompt
    from kbenv.prompts import render

    evaluator, settings = run.evaluator, run.settings
    calls = run.kind.answers(settings) + _summaries(run)
    answer = _answer_tokens(run)
    exchange, beside = answer + feedback_tokens(run), _beside(run)
    system = Message("system", render("system.j2", turns=run.kind.turns(settings)))
    prompt_tokens = 0
    for problem in run.model.problems:
        text = render_prompt(problem, evaluator.protocol, evaluator.device, evaluator.backend, run.prompt)
        task = settings.context.count([system, Message("user", text)])
        sizes = [task + (earlier * exchange + beside if earlier else 0) for earlier in _earlier(run, calls)]
        limit = settings.context.max_tokens
        prompt_tokens += sum(size if limit is None else min(size, limit) for size in sizes)
    problems = len(run.model.problems)
    return calls * problems, prompt_tokens, calls * answer * problems


def feedback_tokens(run: Run) -> int:
    """The most that is read of one answer: of one that failed, or of a right one with its profile."""
    execution, profile = parse_feedback(run.arguments.feedback)
    said = JUDGE_CHARACTERS if execution else 0
    access = ACCESS_CHARACTERS if "access" in run.evaluator.protocol.diagnostics else 0
    failed = DETAIL_CHARACTERS + access if execution else 0
    printed = OUTPUT_CHARACTERS if execution else 0
    return round((said + max(failed, PROFILE_CHARACTERS if profile else 0) + printed) / CHARACTERS_A_TOKEN)


def _reads_nothing(run: Run) -> bool:
    return run.kind.name == "single-shot"


def _earlier(run: Run, calls: int) -> list[int]:
    """Of each call, how many earlier answers are sent with it, summaries and reviews counted as answers."""
    from kbenv.agents.reflect import SHOWN

    settings = run.settings
    if _reads_nothing(run):
        return [0] * calls
    if run.kind.name == "search":
        first = min(calls, settings.parents * settings.children)
        return [0] * first + [2 if settings.selection == "evolution" else 1] * (calls - first)
    if run.kind.episode == "single":
        most = SHOWN if run.kind.name == "reflect" else 2
        attempt = max(1, calls // (settings.n or 1))
        return [min(index % attempt, most) for index in range(calls)]
    k, turns = settings.context.k, run.kind.turns(settings)
    kept = {"full": turns, "last": k, "best-last": k + 1, "summary": 2 * k + 2}[settings.context.policy]
    conversation = max(1, calls // (settings.n or 1))
    return [min(index % conversation, kept) for index in range(calls)]


def _summaries(run: Run) -> int:
    """Calls for summaries that come on top of those for answers; within `--calls` they are among them."""
    settings = run.settings
    if run.kind.name != "multi-turn" or settings.context.policy != "summary" or settings.calls is not None:
        return 0
    return (settings.n or 1) * max(0, run.kind.turns(settings) // (settings.context.k + 1) - 1)


def _beside(run: Run) -> int:
    """Tokens that a later prompt holds beside the task and earlier answers: a skill, its example, what is known."""
    from kbenv.agents import Message

    if run.kind.name != "skills":
        return 0
    from kbenv.agents.skills.library import load_library, read_kernel

    def examples() -> Iterator[Message]:
        for skill in load_library():
            pair = read_kernel(skill.pair.before) + read_kernel(skill.pair.after)
            yield Message("user", pair + skill.method + skill.apply + skill.effect)

    return round(ROLE_CHARACTERS / CHARACTERS_A_TOKEN) + max(run.settings.context.count([one]) for one in examples())


def _answer_tokens(run: Run) -> int:
    return _limit(run) or ANSWER_TOKENS


def _limit(run: Run) -> int | None:
    """Most tokens of an answer; None where nothing was said."""
    settings = run.model.service.settings if run.model.service is not None else {}
    limit = settings.get("max_tokens", settings.get("max_completion_tokens"))
    return limit if isinstance(limit, int) else None


def _cost(run: Run, prompt: int, answer: int) -> float | None:
    if run.model.service is None:
        return 0.0
    prices = run.model.service.price()
    return None if prices is None else prompt * prices[0] + answer * prices[1]
