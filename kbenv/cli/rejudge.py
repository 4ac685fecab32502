"""`kbenv rejudge`: answers that others judged before, judged again here; what changed, and why.

Reads the layouts of KernelBench (`level_L_problem_P_sample_S_kernel.py`, with an `eval_results.json` beside them), of
KernelBench-Verified (the same, other keys), and kbenv's own runs. What it writes is a run again: the same command goes
on where it was, and `kbenv report` reads it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbenv.cli.judging import add_devices_option, add_judging_options, open_pool
from kbenv.cli.table import print_table
from kbenv.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from kbenv.pool import EvaluatorPool, Outcome
    from kbenv.problems.problem import Problem
    from kbenv.store import Store, StoredTurn
    from kbenv.verdict import Verdict

EXIT_DONE = 0
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_RESULTS = "eval_results.json"
CORRECT, WRONG, NOT_COMPILED, UNKNOWN = "correct", "wrong", "not compiled", "unjudged"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv rejudge`."""
    parser = subparsers.add_parser(
        "rejudge",
        help="judge answers again that others have judged",
        description="Judge the kernels in DIR, in KernelBench's layout or of a kbenv run, and say which outcomes "
        "change, and why. Interrupted (Ctrl-C), it goes on where it was when run again.",
        epilog="Exit codes: 0 every kernel has a verdict; 2 bad usage; 3 some have none, the reason is in their line.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument(
        "--problems-dir", type=Path, metavar="DIR", help="a KernelBench checkout (default: $KBENV_KERNELBENCH)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where verdicts are kept (default: beside DIR, as DIR-PROTOCOL)"
    )
    parser.add_argument("--json", metavar="PATH", type=Path, help="write all outcomes, before and now, as JSON")
    add_judging_options(parser)
    add_devices_option(parser)
    parser.set_defaults(func=run)


@dataclass(frozen=True)
class Answer:
    """One answer that was judged before.

    Attributes:
        source: None when it holds no code.
        before: what became of it there: CORRECT, WRONG, NOT_COMPILED, a status of ours, or UNKNOWN.
        runtime_ms: as it was measured there; None when it was not.
        speedup: as it was reported there; None when it was not.
    """

    problem: str
    sample: int
    turn: int
    source: str | None
    before: str
    runtime_ms: float | None = None
    speedup: float | None = None

    @property
    def was_correct(self) -> bool:
        return self.before in (CORRECT, "PASSED")

    @property
    def order(self) -> tuple[list[int], str, int, int]:
        """Level 2 before 10."""
        return [int(part) for part in re.findall(r"\d+", self.problem)], self.problem, self.sample, self.turn


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        UsageError: nothing was judged.
    """
    from kbenv.problems import load_problem
    from kbenv.store import Store, StoreError

    directory: Path = arguments.directory.resolve()
    answers = read_answers(directory)
    names = dict.fromkeys(answer.problem for answer in answers)
    problems = {name: load_problem(name, problems_dir=arguments.problems_dir) for name in names}
    with open_pool(arguments, lambda _: None) as pool:
        config: dict[str, JsonValue] = {
            "rejudged": str(directory), "backend": pool.backend, "device": pool.device.split(":")[0],
            "rules": pool.protocol.model_dump(mode="json"),
        }  # fmt: skip
        out = arguments.out or directory.with_name(f"{directory.name}-{arguments.protocol}")
        store = Store(out, config)
        excluded = sorted(set(problems) & set(pool.protocol.excluded))
        answers = [answer for answer in answers if answer.problem not in excluded]
        if excluded:
            print(f"kbenv: the protocol leaves out {', '.join(excluded)}", file=sys.stderr)
        judged: list[tuple[Answer, Outcome]] = []
        try:
            for answer, outcome in _judge(answers, problems, pool, store):
                judged.append((answer, outcome))
                print(f"[{len(judged)}/{len(answers)}] {line(answer, outcome)}", flush=True)
        except KeyboardInterrupt:
            print("kbenv: interrupted; run the same command again to go on", file=sys.stderr)
            return EXIT_INTERRUPTED
        except StoreError as error:
            print(f"kbenv: {error}", file=sys.stderr)
            return EXIT_FAULT
    judged.sort(key=lambda pair: pair[0].order)
    print_changes(judged)
    print_numbers(judged, problems)
    print(f"verdicts in {out}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([to_json(*pair) for pair in judged], indent=1) + "\n", encoding="utf-8")
    return EXIT_DONE if all(outcome.verdict is not None for _, outcome in judged) else EXIT_FAULT


def _judge(
    answers: Sequence[Answer], problems: Mapping[str, Problem], pool: EvaluatorPool, store: Store
) -> Iterator[tuple[Answer, Outcome]]:
    """Every answer with its outcome: first those on disk, then the others as they come, each stored."""
    from kbenv.pool import Outcome

    left = []
    for index, answer in enumerate(answers):
        stored = store.load(answer.problem, answer.sample, answer.turn)
        if stored is not None and stored.verdict is not None and stored.code == answer.source:
            yield answer, Outcome(index, stored.verdict)
        else:
            left.append(answer)
    for outcome in pool.evaluate_many([(problems[answer.problem], answer.source) for answer in left]):
        answer = left[outcome.index]
        if outcome.verdict is not None:
            store.save(_stored(answer, outcome.verdict))
        yield answer, outcome


def _stored(answer: Answer, verdict: Verdict) -> StoredTurn:
    from kbenv.store import StoredTurn

    return StoredTurn(
        problem=answer.problem, sample=answer.sample, index=answer.turn, model="rejudged", observation="",
        answer=answer.source or "", code=answer.source, prompt_tokens=None, completion_tokens=None, cost_usd=None,
        finish_reason=None, judged=True, verdict=verdict,
    )  # fmt: skip


# -- what there is ----------------------------------------------------------------------------------------------------


def read_answers(directory: Path) -> list[Answer]:
    """Every answer in the directory, by problem, sample and turn.

    Raises:
        UsageError: there is none, or a file is damaged.
    """
    from kbenv.store import RUN_FILE, read_turns

    if (directory / RUN_FILE).is_file():
        answers = [
            Answer(
                turn.problem, turn.sample, turn.index, turn.code or _code_in(turn.answer),
                turn.verdict.status.value if turn.verdict is not None else UNKNOWN,
                turn.verdict.latency_ms if turn.verdict is not None else None,
                turn.verdict.speedup.value if turn.verdict is not None and turn.verdict.speedup is not None else None,
            )
            for turn in read_turns(directory)
            if turn.verdict is not None or not turn.judged  # a farewell was no answer
        ]  # fmt: skip
    else:
        answers = _read_upstream(directory)
    if not answers:
        raise UsageError(
            f"expected level_L_problem_P_sample_S_kernel.py files, or a run of kbenv; {directory} holds neither"
        )
    return answers


def _code_in(answer: str) -> str | None:
    """Of an answer that was never judged."""
    from kbenv.extraction import extract_code

    return extract_code(answer)


def _read_upstream(directory: Path) -> list[Answer]:
    found = []
    results: dict[Path, Mapping[tuple[int, int], dict[str, Any]]] = {}
    for path in directory.rglob("*_kernel.py"):
        match = _KERNEL.fullmatch(path.name)
        if match is None:
            continue
        level, problem, sample = (int(part) for part in match.groups())
        if path.parent not in results:
            results[path.parent] = _read_results(path.parent / _RESULTS)
        entry = results[path.parent].get((problem, sample), {})
        runtime = entry.get("runtime")
        reference = entry.get("ref_runtime")
        runtime_ms = float(runtime) if isinstance(runtime, int | float) and runtime > 0 else None
        speedup = (
            reference / runtime_ms if isinstance(reference, int | float) and reference > 0 and runtime_ms else None
        )
        source = path.read_text(encoding="utf-8", errors="replace")
        name = f"kernelbench/level{level}/{problem}"
        found.append(Answer(name, sample, 0, source, _before(entry), runtime_ms, speedup))
    return sorted(found, key=lambda answer: answer.order)


def _positive(value: object) -> float | None:
    """A measured time; upstream writes -1 for none."""
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _before(entry: Mapping[str, Any]) -> str:
    if not entry:
        return UNKNOWN
    if entry.get("correctness"):
        return CORRECT
    return WRONG if entry.get("compiled") else NOT_COMPILED


def _read_results(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Upstream's results by problem and sample: lists by problem, or entries by "problem_sample"."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as upstream's results ({error}); remove it, or restore it") from error
    found: dict[tuple[int, int], dict[str, Any]] = {}
    try:
        for key, value in data.items():
            problem, _, sample = key.partition("_")
            for entry in value if isinstance(value, list) else [value]:
                found[int(problem), int(sample or entry.get("sample_id", 0))] = entry
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: expected results by problem (KernelBench), or by problem_sample (KernelBench-Verified); {error}"
        ) from error
    return found


# -- what came of it --------------------------------------------------------------------------------------------------


def line(answer: Answer, outcome: Outcome) -> str:
    """One answer, before and now."""
    turn = f" turn {answer.turn}" if answer.turn else ""
    return f"{answer.problem} sample {answer.sample}{turn}: {answer.before} -> {_now(outcome)}"


def _now(outcome: Outcome) -> str:
    verdict = outcome.verdict
    if verdict is None:
        return f"no verdict ({' '.join((outcome.fault or '').split())})"
    speedup = f" {verdict.speedup.value:.3g}x" if verdict.credited and verdict.speedup is not None else ""
    return f"{verdict.status.value}{speedup}"


def print_changes(judged: Sequence[tuple[Answer, Outcome]]) -> None:
    """How many of each outcome became which, and for those that lost or won credit, why."""
    counts = Counter((answer.before, _status(outcome)) for answer, outcome in judged)
    print()
    print_table(("BEFORE", "NOW", "ANSWERS"), [(*pair, str(count)) for pair, count in sorted(counts.items())])
    changed = [
        (answer, outcome.verdict)
        for answer, outcome in judged
        if outcome.verdict is not None and answer.before != UNKNOWN and answer.was_correct != outcome.verdict.credited
    ]
    if changed:
        print()
        print_table(("CHANGED", "NOW", "WHY"), [_why(answer, verdict) for answer, verdict in changed])


def _status(outcome: Outcome) -> str:
    return "no verdict" if outcome.verdict is None else outcome.verdict.status.value


def _why(answer: Answer, verdict: Verdict) -> tuple[str, str, str]:
    place = f"{answer.problem} {answer.sample}" + (f".{answer.turn}" if answer.turn else "")
    return place, verdict.status.value, " ".join(verdict.message.split())


def print_numbers(judged: Sequence[tuple[Answer, Outcome]], problems: Mapping[str, Problem]) -> None:
    """The metrics of the new verdicts; a conversation counts as its fastest turn."""
    from rich.console import Console

    from kbenv.cli.report import make_report, print_report

    attempts: dict[str, dict[int, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    for answer, outcome in judged:
        if outcome.verdict is not None:
            attempts[answer.problem][answer.sample].append(outcome.verdict)
    unjudged = [name for name in problems if name not in attempts]
    print_report(Console(highlight=False), make_report("", attempts, unjudged, problems))


def to_json(answer: Answer, outcome: Outcome) -> dict[str, Any]:
    """One answer, before and now, with its verdict whole."""
    return {
        "problem": answer.problem, "sample": answer.sample, "turn": answer.turn,
        "before": {"outcome": answer.before, "runtime_ms": answer.runtime_ms, "speedup": answer.speedup},
        "verdict": None if outcome.verdict is None else outcome.verdict.model_dump(mode="json"),
        "fault": outcome.fault,
    }  # fmt: skip
