"""`kbenv run --dry-run`: how many calls, tokens and dollars a run would take, before anything is asked.

Prompts are counted by litellm. What answers and feedback will hold is not known beforehand: an answer is taken to have
as many tokens as `--max-tokens` allows, or `ANSWER_TOKENS` where nothing is said, and feedback `FEEDBACK_TOKENS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from kbenv.cli.run import Run

ANSWER_TOKENS = 4000
FEEDBACK_TOKENS = 300


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
    bounded = all(_limit(run) is not None for run in runs if run.model.service is not None)
    if not bounded:
        console.print(
            f"answers are taken to have {ANSWER_TOKENS:,} tokens, which reasoning can exceed many times over: "
            "--max-tokens bounds them, --max-cost the whole",
            markup=False,
        )
    words = "an unknown cost" if total is None else f"{'at most' if bounded else 'about'} ${total:.2f}"
    console.print(f"{words}; nothing was asked", markup=False)
    return 0


def estimate(run: Run) -> tuple[int, int, int]:
    """Calls, tokens of prompts and tokens of answers, of all problems together, at most."""
    from kbenv.agents import Message
    from kbenv.prompt import render_prompt
    from kbenv.prompts import render

    evaluator, settings = run.evaluator, run.settings
    calls = run.kind.answers(settings)
    answer = _answer_tokens(run)
    system = Message("system", render("system.j2", turns=run.kind.turns(settings)))
    prompt_tokens = 0
    for problem in run.model.problems:
        text = render_prompt(problem, evaluator.protocol, evaluator.device, evaluator.backend, run.prompt)
        task = settings.context.count([system, Message("user", text)])
        sizes = [task + earlier * (answer + FEEDBACK_TOKENS) for earlier in _earlier(run, calls)]
        limit = settings.context.max_tokens
        prompt_tokens += sum(size if limit is None else min(size, limit) for size in sizes)
    problems = len(run.model.problems)
    return calls * problems, prompt_tokens, calls * answer * problems


def _earlier(run: Run, calls: int) -> list[int]:
    """Of each call, how many earlier answers are sent with it."""
    settings = run.settings
    if run.kind.name == "single-shot":
        return [0] * calls
    if run.kind.episode == "single":
        return [0, *([1 if run.kind.name == "search" else 2] * (calls - 1))]
    turns = run.kind.turns(settings)
    most = {"full": turns, "last": settings.context.k, "best-last": settings.context.k + 1}
    kept = most.get(settings.context.policy, 2 * settings.context.k)
    return [min(index % turns, kept) for index in range(calls)]


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
