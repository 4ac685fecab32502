"""`kbenv redteam`: every attack and every unusual honest kernel of the repository, judged on this installation."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbenv.cli.judging import add_judging_options, open_evaluator
from kbenv.errors import SandboxError, UsageError

if TYPE_CHECKING:
    from kbenv.corpus import Case, Kind
    from kbenv.evaluator import Evaluator
    from kbenv.verdict import Verdict


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv redteam`."""
    parser = subparsers.add_parser(
        "redteam",
        help="judge every attack and every unusual honest kernel that the repository knows",
        description="Judges the corpora under the repository's tests/ on this installation: nothing of tests/exploits "
        "may be credited (or gain anything, or tell the agent anything), nothing of tests/honest refused. A line each: "
        "ok; noted (credited, where the file says that it may be); other (refused by another status than the file "
        "names, or slower than an honest file claims); VIOLATION; unjudged; and how many verdicts that took. Exit code "
        "0 when all that holds, 1 for a violation, 3 when some could not be judged. A custom kernel is asked for by "
        "--require-custom-kernel and by the files that attack that rule, since most attacks are written in PyTorch, "
        "and would be refused for that alone.",
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
            print(f"{row['outcome']:9} {kind:8} {row['name']:36} {row['verdicts']} {row['said']}"[:160], flush=True)
            if arguments.json is not None:  # again after each: what is interrupted keeps what it has
                report = {"device": evaluator.device, "protocol": protocol.model_dump(mode="json"), "rows": rows}
                arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    count = Counter(row["outcome"] for row in rows)
    print(
        f"{len(rows)} judged on {evaluator.device}: {count['VIOLATION']} violations, {count['other']} other than "
        f"expected, {count['unjudged']} without a verdict, {len(cases) - len(rows)} left out"
    )
    return 1 if count["VIOLATION"] else 3 if count["unjudged"] else 0


def parse_shard(text: str | None) -> tuple[int, int]:
    """From "K/N": index of the first, and the step. Raises UsageError."""
    if text is None:
        return 0, 1
    one, slash, all_ = text.partition("/")
    if slash and one.isdecimal() and all_.isdecimal() and 1 <= int(one) <= int(all_):
        return int(one) - 1, int(all_)
    raise UsageError(f"--shard takes K/N with K from 1 to N, such as 2/8; found {text!r}")


def judge(kind: Kind, case: Case, evaluator: Evaluator, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row of the matrix: what was expected, what came of how many verdicts, and whether that may be."""
    from kbenv.corpus import try_exploit, try_honest

    row: dict[str, Any] = {"kind": kind, "name": case.name, "problem": case.constants["PROBLEM"]}
    if kind == "exploit":
        row["expected"] = list(case.expect)
    try:
        with _rules_of(case, evaluator, arguments) as judging:

            def evaluate() -> Verdict:
                return judging.evaluate(case.problem, case.source)

            if kind == "exploit":
                outcome = try_exploit(case, evaluate)
            else:
                outcome = try_honest(case, evaluate, arguments.repeats)
    except SandboxError as error:
        print(f"kbenv: {case.name}: {error}", file=sys.stderr)
        return row | {"outcome": "unjudged", "said": " ".join(str(error).split())[:300], "verdicts": 0}
    row |= {"outcome": outcome.word, "said": outcome.said[:300], "verdicts": len(outcome.verdicts)}
    if outcome.verdicts:
        last = outcome.verdicts[-1]
        row |= {
            "status": last.status.value, "message": last.message,
            "speedup": last.speedup.model_dump() if last.speedup else None,
            "seconds": round(sum(sum(verdict.seconds.values()) for verdict in outcome.verdicts), 2),
        }  # fmt: skip
    return row


@contextlib.contextmanager
def _rules_of(case: Case, evaluator: Evaluator, arguments: argparse.Namespace) -> Iterator[Evaluator]:
    """The evaluator, or for a file with rules of its own one that has these."""
    changes = dict(case.constants.get("PROTOCOL", {}))
    if case.constants.get("SLOW"):
        changes["limits"] = evaluator.protocol.limits.model_copy(update={"build_s": 200.0, "job_s": 400.0})
    if not changes:
        yield evaluator
        return
    own = argparse.Namespace(**vars(arguments))
    own.protocol = evaluator.protocol.model_copy(update=changes)
    with open_evaluator(own, lambda _: None) as apart:
        yield apart
