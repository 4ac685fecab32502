"""What a coding agent may do with one problem: read it, compile, check, profile, submit, within budgets.

Only a submission is judged by the protocol. The other tools judge by a trial of it: the same rules without hidden
inputs and cases and with a short clock, once for each source whatever is asked of it, so that compiling, checking and
profiling the same source cost one job. Nothing here knows of a transport: `kbenv.cli.mcp` serves it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kbenv.case import failed_case
from kbenv.errors import UsageError
from kbenv.evaluator import Evaluator
from kbenv.extraction import extract_code
from kbenv.feedback import is_hidden, render_feedback
from kbenv.problems.problem import Problem
from kbenv.profile import render_profile
from kbenv.prompt import render_prompt
from kbenv.prompts import render
from kbenv.protocol import DIAGNOSTICS, PROFILE, Protocol
from kbenv.verdict import Stage, Status, Verdict

Tool = Literal["read_problem", "compile", "check", "profile", "submit"]
TOOLS: tuple[Tool, ...] = ("read_problem", "compile", "check", "profile", "submit")

_RIGHT = (Status.PASSED, Status.NO_CUSTOM_KERNEL)


class BudgetSpentError(UsageError):
    """The agent may not do this any more."""


@dataclass(frozen=True)
class Budget:
    """What an agent may use: judged calls of any tool, submissions among them, and seconds of judging in all."""

    calls: int = 100
    submissions: int = 10
    seconds: float = 3600.0


def unfenced(source: str) -> str:
    """`source` without the Markdown fence that some agents put around it."""
    return (extract_code(source) or source) if source.lstrip().startswith(("```", "~~~")) else source


OnVerdict = Callable[[Tool, str, Verdict], None]


def trial_protocol(protocol: Protocol) -> Protocol:
    """`protocol` for a trial: the standard trials alone, at quick effort, and what a profile is made of."""
    wanted = tuple(name for name in DIAGNOSTICS if name in PROFILE or name in protocol.diagnostics)
    return protocol.with_effort("quick").model_copy(
        update={
            "hidden_inputs": (), "probes": (), "perturb_timed": False, "memory": False, "diagnostics": wanted,
        }
    )  # fmt: skip


class Workbench:
    """The tools for one problem, each a function from a source to what the agent reads.

    Args:
        problem: what is to be solved.
        judge: the evaluator that submissions are judged by.
        trial: one whose protocol is `trial_protocol` of it.
        budget: see there.
        on_verdict: called with the tool, the source and every new verdict; it may write them down.

    Raises:
        UsageError: every case of the problem is hidden.
    """

    def __init__(
        self, problem: Problem, judge: Evaluator, trial: Evaluator, budget: Budget | None = None,
        on_verdict: OnVerdict | None = None,
    ) -> None:  # fmt: skip
        self._problem = problem
        self._shown = problem.without_hidden_cases()
        self._judge = judge
        self._trial = trial
        self._budget = budget or Budget()
        self._on_verdict = on_verdict or (lambda *_: None)
        self._trials: dict[str, Verdict] = {}
        self._calls = 0
        self._submissions = 0
        self._seconds = 0.0
        self.best: Verdict | None = None
        """The credited submission with the highest speedup."""

    def read_problem(self) -> str:
        """The task and its rules; costs nothing."""
        judge = self._judge
        task = render_prompt(self._problem, judge.protocol, judge.device, judge.backend)
        return self._closed(render("workbench.j2", part="task", task=task, budget=self._budget))

    def compile(self, source: str) -> str:
        """Whether the source compiles and loads, or the compiler's words."""
        verdict = self._try("compile", source)
        failed = verdict.stage in (Stage.FORMAT, Stage.LOAD)
        return self._closed(render_feedback(verdict) if failed else render("workbench.j2", part="compiled"))

    def check(self, source: str) -> str:
        """Whether the standard trials are right, or where and how they are wrong."""
        verdict = self._try("check", source)
        right = verdict.status in _RIGHT or is_hidden(verdict)
        return self._closed(self._checked(verdict) if right else render_feedback(verdict))

    def profile(self, source: str) -> str:
        """How fast a right source is, and what limits it."""
        source = unfenced(source)
        verdict = self._try("profile", source)
        if is_hidden(verdict):  # of a trial: a later call went wrong, and nothing hidden was looked at
            return self._closed(self._checked(verdict))
        profile = render_profile(verdict, source) if verdict.status in _RIGHT else None
        return self._closed("\n\n".join(filter(None, (render_feedback(verdict), profile))))

    def submit(self, source: str) -> str:
        """The protocol's verdict, as far as an agent may read it."""
        if self._submissions >= self._budget.submissions:
            raise BudgetSpentError(f"all {self._budget.submissions} submissions are used")
        verdict = self._evaluate("submit", unfenced(source), self._judge, self._problem)
        self._submissions += 1
        faster = self.best is None or self.best.speedup is None or (
            verdict.speedup is not None and verdict.speedup.value > self.best.speedup.value
        )  # fmt: skip
        if verdict.credited and faster:
            self.best = verdict
        return self._closed(render_feedback(verdict))

    def _try(self, tool: Tool, source: str) -> Verdict:
        """The source's trial: judged the first time that a tool asks for it."""
        source = unfenced(source)
        key = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        if key not in self._trials:
            self._trials[key] = self._evaluate(tool, source, self._trial, self._shown)
        return self._trials[key]

    def _checked(self, verdict: Verdict) -> str:
        """Of a trial whose standard trials are right."""
        late = is_hidden(verdict)
        values = {"trials": verdict.protocol.standard_trials, "late": late, "cases": len(self._shown.cases)}
        return render("workbench.j2", part="checked", case=failed_case(verdict) if late else None, **values)

    def _evaluate(self, tool: Tool, source: str, evaluator: Evaluator, problem: Problem) -> Verdict:
        """Judges within the budget; a fault of the machine (SandboxError) costs time and no call."""
        if self._calls >= self._budget.calls:
            raise BudgetSpentError(f"all {self._budget.calls} judged calls are used")
        if self._seconds >= self._budget.seconds:
            raise BudgetSpentError(f"the {self._budget.seconds:g} seconds of judging are used")
        began = time.monotonic()
        try:
            verdict = evaluator.evaluate(problem, source)
        finally:
            self._seconds += time.monotonic() - began
        self._calls += 1
        self._on_verdict(tool, source, verdict)
        return verdict

    def _closed(self, text: str) -> str:
        """The text with what is left of the budget, and the best so far."""
        left = Budget(
            max(0, self._budget.calls - self._calls),
            max(0, self._budget.submissions - self._submissions),
            max(0.0, self._budget.seconds - self._seconds),
        )
        closing = render("workbench.j2", part="left", left=left, best=self.best)
        return f"{text.strip()}\n\n{closing.strip()}\n"


def describe_tool(tool: Tool) -> str:
    """What an agent reads about a tool before it calls it."""
    return render("workbench.j2", part="tool", tool=tool).strip()
