"""`kbenv redteam`: every attack and every unusual honest kernel of the repository, judged on this installation."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbenv.cli.judging import add_judging_options, open_evaluator
from kbenv.errors import ReferenceFaultError, SandboxError, UsageError

if TYPE_CHECKING:
    from kbenv.corpus import Case
    from kbenv.evaluator import Evaluator

_TRIES = 3
"""Of an attack that is credited for slow honest work: a slow kernel's number may be off once, on a busy machine."""
Kind = Literal["exploit", "honest"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv redteam`."""
    parser = subparsers.add_parser(
        "redteam",
        help="judge every attack and every unusual honest kernel that the repository knows",
        description="Judges the corpora under the repository's tests/ on this installation: nothing of tests/exploits "
        "may be credited (or gain anything), nothing of tests/honest refused. Exit code 0 when that holds, 1 when not, "
        "3 when some could not be judged.",
    )
    parser.add_argument(
        "--only", metavar="ID", action="append",
        help="files whose name begins with this, such as t11 or s1_identity; may be given several times",
    )  # fmt: skip
    parser.add_argument("--shard", metavar="K/N", help="every N-th file, from the K-th on, for N processes to share")
    parser.add_argument("--tests", type=Path, metavar="DIR", help="the tests/ of a checkout (default: this one's)")
    parser.add_argument(
        "--quick", action="store_true", help="as --effort quick, with two pairs of runners, and tight limits"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="judge each honest file N times, with new draws each time"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write what came of each, as JSON")
    add_judging_options(parser)
    parser.set_defaults(func=run, protocol="hardened", require_custom_kernel=False)


def run(arguments: argparse.Namespace) -> int:
    """Judges all, prints a line each and the sum, and returns the exit code.

    Raises:
        UsageError: there is no corpus, or nothing in it of that name.
    """
    from kbenv.corpus import TESTS, load_cases, quick
    from kbenv.protocol import get_protocol
    from kbenv.sandbox.choice import choose_device

    first, step = parse_shard(arguments.shard)
    if arguments.repeats < 1:
        raise UsageError(f"--repeats takes a number from 1 up; found {arguments.repeats}")
    protocol = get_protocol(
        arguments.protocol, arguments.precision, require_custom_kernel=arguments.require_custom_kernel
    )
    if arguments.quick:
        protocol = quick(protocol, choose_device(arguments.device)[0])
    arguments.protocol, arguments.require_custom_kernel = protocol, None
    tests = arguments.tests or TESTS
    rows: list[dict[str, Any]] = []
    with open_evaluator(arguments, lambda _: None) as evaluator:
        folder = "" if evaluator.device == "cpu" else "/cuda"
        cases: list[tuple[Kind, Case]] = [("exploit", case) for case in load_cases(f"exploits{folder}", tests)]
        cases += [("honest", case) for case in load_cases(f"honest{folder}", tests)]
        names = tuple(name.lower() for name in arguments.only or [""])
        cases = [(kind, case) for kind, case in cases if case.name.startswith(names)]
        if not cases:
            raise UsageError(f"--only must begin a file's name; none in {tests} begins with {' or '.join(names)}")
        cases = cases[first::step]
        for kind, case in cases:
            if case.lacking is not None:
                print(f"left out  {kind:8} {case.name:36} needs {case.lacking}, which is not here", flush=True)
                continue
            row = judge(kind, case, evaluator, arguments)
            rows.append(row)
            print(f"{row['outcome']:9} {kind:8} {row['name']:36} {row['said']}"[:160], flush=True)
            if arguments.json is not None:  # again after each: what is interrupted keeps what it has
                report = {"device": evaluator.device, "protocol": protocol.model_dump(mode="json"), "rows": rows}
                arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    bad = [row for row in rows if row["outcome"] == "VIOLATION"]
    unjudged = [row for row in rows if row["outcome"] == "unjudged"]
    count = f"{len(bad)} violations, {len(unjudged)} without a verdict"
    if len(rows) < len(cases):
        count += f", {len(cases) - len(rows)} left out"
    print(f"{len(rows)} judged on {evaluator.device}: {count}")
    return 1 if bad else 3 if unjudged else 0


def parse_shard(text: str | None) -> tuple[int, int]:
    """From "K/N": index of the first, and the step. Raises UsageError."""
    if text is None:
        return 0, 1
    one, slash, all_ = text.partition("/")
    if slash and one.isdecimal() and all_.isdecimal() and 1 <= int(one) <= int(all_):
        return int(one) - 1, int(all_)
    raise UsageError(f"--shard takes K/N with K from 1 to N, such as 2/8; found {text!r}")


def judge(kind: Kind, case: Case, evaluator: Evaluator, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row of the matrix: what was expected, what came, and whether that may be."""
    from kbenv.corpus import BEST_EFFORT, UNJUDGED, find_violation

    row: dict[str, Any] = {"kind": kind, "name": case.name, "problem": case.constants["PROBLEM"]}
    if kind == "exploit":
        row["expected"] = list(case.expect)
    verdicts = 0
    changes = dict(case.constants.get("PROTOCOL", {}))
    if case.constants.get("SLOW"):
        changes["limits"] = evaluator.protocol.limits.model_copy(update={"build_s": 200.0, "job_s": 400.0})
    try:
        for _ in range(arguments.repeats if kind == "honest" else _TRIES):
            if changes:  # rules of its own: a judge of its own
                own = argparse.Namespace(**vars(arguments))
                own.protocol = evaluator.protocol.model_copy(update=changes)
                with open_evaluator(own, lambda _: None) as apart:
                    verdict = apart.evaluate(case.problem, case.source)
            else:
                verdict = evaluator.evaluate(case.problem, case.source)
            verdicts += 1
            violation = find_violation(kind, case, verdict)
            if kind == "honest" and violation is None:
                continue
            if kind == "honest" or violation is None or "no_effect" not in case.expect:
                break
    except ReferenceFaultError as error:
        outcome = "ok" if kind == "exploit" and UNJUDGED in case.expect else "unjudged"
        return row | {"outcome": outcome, "said": " ".join(str(error).split())[:300]}
    except SandboxError as error:
        print(f"kbenv: {case.name}: {error}", file=sys.stderr)
        return row | {"outcome": "unjudged", "said": " ".join(str(error).split())[:300]}
    speedup = verdict.speedup.model_dump() if verdict.speedup else None
    said = violation or verdict.status.value + (f" {verdict.speedup.value:.3g}x" if verdict.speedup else "")
    outcome = "noted" if verdict.credited and BEST_EFFORT in case.constants else "ok"
    return row | {
        "outcome": "VIOLATION" if violation else outcome, "said": said, "status": verdict.status.value,
        "message": verdict.message, "verdicts": verdicts, "speedup": speedup,
        "seconds": round(sum(verdict.seconds.values()), 2),
    }  # fmt: skip
