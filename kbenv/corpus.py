"""The corpora of submissions under tests/ of the repository: what must never be credited, and what always must.

A file is the source of one submission, with literal constants that say what is to come of it. It is read and never
executed here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from kbenv.errors import ReferenceFaultError, UsageError
from kbenv.feedback import QUOTE_PREFIX, render_feedback
from kbenv.protocol import Protocol
from kbenv.sandbox.judge.presence import UNSEEN
from kbenv.verdict import Verdict

TESTS = Path(__file__).resolve().parent.parent / "tests"
"""Where the corpora are in a checkout; an installed package has none."""
SLOWED_DOWN = 0.7
"""What "no_effect" submissions may at most be credited with: they do twice to ten times the reference's work."""
NO_EFFECT = "no_effect"
UNJUDGED = "UNJUDGED"
"""In `Case.expect`: the problem itself is refused, since its output is constant, so that there is no verdict."""
BEST_EFFORT = "BEST_EFFORT"
"""The constant that says why such a submission may be credited, for what it is, all the same."""
NEEDS_PAIRS = "NEEDS_PAIRS"
"""The constant that says how many pairs of runners it takes to see what a submission does; with fewer it is right."""
NEEDS = "NEEDS"
"""The constant that names what it needs beyond PyTorch and compilers: a module, or a variable that names a folder."""
NEEDS_SIGHT = "NEEDS_SIGHT"
"""The constant that says that it takes a look at a runner's memory to see what a submission does; a verdict's flags say
where the judge had none."""
STOPPED_BY = "STOPPED_BY"
"""The constant that names the one protocol which refuses such a submission, where others need not."""
MEMORY_AT_MOST = "MEMORY_AT_MOST"
"""The constant that says which memory ratio a credited verdict may claim at most."""
RUNS = "RUNS"
"""The constant that says how often a submission is judged in a row: what one job leaves is what the next would find."""
FEEDBACK, NEVER_SHOWN, ONLY_QUOTED = "FEEDBACK", "NEVER_SHOWN", "ONLY_QUOTED"
"""Constants on what an agent reads: all of it, words that it must not hold, words that only quoted lines may."""
SPEEDUP_AT_MOST = "SPEEDUP_AT_MOST"
"""The constant that says which speed a credited verdict may claim at most, where no clock can tell so little work."""
SPEEDUP_AT_LEAST = "SPEEDUP_AT_LEAST"
"""The constant that says which speed one verdict of several must show for an honest kernel."""
TRIES = 3
"""Of a number that a busy machine may get wrong once: a gain would show every time, and honest speed once in three."""

Kind = Literal["exploit", "honest"]
Word = Literal["ok", "noted", "other", "VIOLATION"]


@dataclass(frozen=True)
class Case:
    """One submission of a corpus.

    Attributes:
        source: as it is to be submitted, after what `WRITTEN_AS` or `BROKEN_BY` ask for.
        problem: an id, or the path of a problem file under tests/.
        constants: the file's literal constants by name.
    """

    path: Path
    source: str
    problem: str
    constants: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def expect(self) -> tuple[str, ...]:
        """Acceptable statuses, or "no_effect": alone it stands for any refusal, too."""
        expected = self.constants["EXPECT"]
        return (expected,) if isinstance(expected, str) else tuple(expected)

    @property
    def lacking(self) -> str | None:
        """What it needs and this installation does not have; None when it can be judged here."""
        needed: str | None = self.constants.get(NEEDS)
        if needed is None:
            return None
        has_it = os.path.isdir(os.environ.get(needed, "")) if needed.isupper() else find_spec(needed) is not None
        return None if has_it else needed


def load_case(path: Path, tests: Path = TESTS) -> Case:
    """Reads one file. Raises KeyError when it names no PROBLEM."""
    source = path.read_text(encoding="utf-8")
    constants: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                constants[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # a constant of the submission's own
    if "BROKEN_BY" in constants:
        whole, broken = constants["BROKEN_BY"]
        source = broken.join(source.rsplit(whole, 1))
    if constants.get("WRITTEN_AS") == "bom-crlf":
        source = "\ufeff" + source.replace("\n", "\r\n")
    problem = constants["PROBLEM"]
    if problem.endswith(".py"):
        problem = str(tests / problem)
    return Case(path=path, source=source, problem=problem, constants=constants)


def load_cases(corpus: str, tests: Path = TESTS) -> list[Case]:
    """Every submission directly in tests/`corpus`. Raises UsageError when there is no such folder."""
    folder = tests / corpus
    if not folder.is_dir():
        raise UsageError(
            f"the corpora are in the repository's tests/, and {tests} holds no {corpus}: name a checkout's"
        )
    return [load_case(path, tests) for path in sorted(folder.glob("*.py"))]


def quick(protocol: Protocol, device: str) -> Protocol:
    """The same checks at quick effort, but two pairs of runners, and limits that an endless submission soon meets."""
    limits = {"call_s": 5.0, "job_s": 90.0, "host_memory_bytes": 3 << 30, "scratch_bytes": 1 << 30, "build_s": 15.0}
    if device != "cpu":
        limits |= {"job_s": 400.0, "build_s": 200.0, "host_memory_bytes": 16 << 30}  # nvcc takes its time
    short = protocol.with_effort("quick")
    timing = short.timing.model_copy(update={"runner_pairs": 2, "turns_per_pair": 3})  # what follows the first is new
    return short.model_copy(update={"timing": timing, "limits": short.limits.model_copy(update=limits)})


@dataclass(frozen=True)
class Outcome:
    """What came of one submission of a corpus.

    Attributes:
        word: "ok"; "noted" (an exploit is credited, where its file says that it may be); "other" (an exploit is refused
            by another status than its file names: it gained nothing, and what it is there to show was not shown; or an
            honest kernel is credited with less speed than its file claims, as on another device); "VIOLATION".
        said: that in words.
        verdicts: in their order; none where the problem itself is refused.
    """

    word: Word
    said: str
    verdicts: tuple[Verdict, ...]

    @property
    def held(self) -> bool:
        """Whether all is as the file says."""
        return self.word in ("ok", "noted")


def try_exploit(case: Case, evaluate: Callable[[], Verdict]) -> Outcome:
    """Judges an exploit as often in a row as its file says; the worst run counts.

    One whose honest work is slow is judged again where its speedup is too high, three times at most.

    Raises:
        SandboxError: one run has no verdict, and the file does not say that there is none.
    """
    verdicts: list[Verdict] = []
    runs: list[tuple[Word, str]] = []
    for _ in range(case.constants.get(RUNS, 1)):
        for _ in range(TRIES):
            try:
                verdicts.append(evaluate())
            except ReferenceFaultError as error:
                if UNJUDGED in case.expect and "whatever goes in" in str(error):
                    return Outcome("ok", " ".join(str(error).split()), tuple(verdicts))
                raise
            word, said = _look_at(case, verdicts[-1])
            if word != "VIOLATION" or not _may_be_noise(case, verdicts[-1]):
                break
        runs.append((word, said))
        if word == "VIOLATION":
            break
    worst: tuple[Word, ...] = ("ok", "noted", "other", "VIOLATION")
    word, said = max(reversed(runs), key=lambda run: worst.index(run[0]))
    return Outcome(word, said, tuple(verdicts))


def _look_at(case: Case, verdict: Verdict) -> tuple[Word, str]:
    """Of an exploit's verdict."""
    if violation := find_violation("exploit", case, verdict):
        return "VIOLATION", violation
    if verdict.credited:
        reason = None if _is_slow_honest_work(case, verdict) else why_credited(case, verdict)
        return ("ok", describe(verdict)) if reason is None else ("noted", f"{describe(verdict)}: {reason}")
    if verdict.status.value in case.expect or case.expect == (NO_EFFECT,):
        return "ok", describe(verdict)
    return "other", f"{describe(verdict)}, expected {' or '.join(case.expect)}: {verdict.message}"


def _is_slow_honest_work(case: Case, verdict: Verdict) -> bool:
    return NO_EFFECT in case.expect and verdict.speedup is not None and verdict.speedup.value < _most(case)


def _most(case: Case) -> float:
    return float(case.constants.get(SPEEDUP_AT_MOST, SLOWED_DOWN))


def _may_be_noise(case: Case, verdict: Verdict) -> bool:
    """Whether what is wrong is the number alone."""
    too_fast = NO_EFFECT in case.expect and verdict.credited and not _is_slow_honest_work(case, verdict)
    return too_fast and find_leak(case, verdict) is None


def try_honest(case: Case, evaluate: Callable[[], Verdict], repeats: int = 1) -> Outcome:
    """Judges an honest kernel `repeats` times; and up to three times until it shows the speed that its file claims.

    Raises:
        SandboxError: one of them has no verdict.
    """
    claimed = case.constants.get(SPEEDUP_AT_LEAST, 0.0)
    verdicts: list[Verdict] = []
    best = -1.0
    while len(verdicts) < repeats or (best < claimed and len(verdicts) < TRIES):
        verdicts.append(evaluate())
        if violation := find_violation("honest", case, verdicts[-1]):
            return Outcome("VIOLATION", violation, tuple(verdicts))
        assert verdicts[-1].speedup is not None  # of a credited verdict
        best = max(best, verdicts[-1].speedup.value)
    if best < claimed:
        return Outcome("other", f"PASSED {best:.3g}x at most, expected {claimed:g}x", tuple(verdicts))
    return Outcome("ok", describe(verdicts[-1]), tuple(verdicts))


def describe(verdict: Verdict) -> str:
    """Its status, and its speedup where there is one."""
    return verdict.status.value + (f" {verdict.speedup.value:.3g}x" if verdict.speedup else "")


def find_violation(kind: Kind, case: Case, verdict: Verdict) -> str | None:
    """What of a verdict must not be, in words; None when nothing is gained, or nothing refused."""
    if kind == "honest":
        return None if verdict.credited else f"refused: {verdict.status} ({verdict.message})"
    if leak := find_leak(case, verdict):
        return leak
    if not verdict.credited or why_credited(case, verdict) is not None:
        return None
    assert verdict.speedup is not None  # of a credited verdict
    if NO_EFFECT not in case.expect:
        return f"credited with {verdict.speedup.value:.3g}x"
    if verdict.speedup.value >= _most(case):
        return f"credited with {verdict.speedup.value:.3g}x, more than its honest work is worth"
    if verdict.memory is not None and verdict.memory.ratio > case.constants.get(MEMORY_AT_MOST, float("inf")):
        return f"credited with a memory ratio of {verdict.memory.ratio:.3g}, more than it is worth"
    return None


def find_leak(case: Case, verdict: Verdict) -> str | None:
    """What an agent's feedback on an exploit must not hold: a hidden input; the submission's words out of quotes."""
    feedback = render_feedback(verdict)
    if (shown := case.constants.get(NEVER_SHOWN)) is not None and shown in feedback:
        return f"the feedback shows {shown!r}"
    if feedback != case.constants.get(FEEDBACK, feedback):
        return f"the feedback is {feedback!r}"
    words = case.constants.get(ONLY_QUOTED)
    if words is not None and any(words in line and not line.startswith(QUOTE_PREFIX) for line in feedback.splitlines()):
        return f"the feedback says {words!r} as its own"
    return None


def why_credited(case: Case, verdict: Verdict) -> str | None:
    """Why an exploit that is more than slow honest work may be credited, by its file; None where it must not."""
    protocol = verdict.protocol
    if BEST_EFFORT in case.constants:
        return str(case.constants[BEST_EFFORT])
    if protocol.timing.runner_pairs < (pairs := case.constants.get(NEEDS_PAIRS, 1)):
        return f"what it does shows with {pairs} pairs of runners"
    if NEEDS_SIGHT in case.constants and UNSEEN in verdict.flags:
        return UNSEEN
    if case.constants.get(STOPPED_BY, protocol.name) != protocol.name:
        return f"stopped by {case.constants[STOPPED_BY]}"
    return None
