"""How often a protocol credits a kernel that is wrong: judges the mutants under tests/mutants.

    python benchmarks/mutants.py --protocol verified --split tune --limit 150
    python benchmarks/mutants.py --table benchmarks/results/mutants.md

The first judges, in an order that a hash decides, and appends a line for each to a file of --verdicts; run again, it
goes on where it stopped. The second writes one table of all such files. A seed is judged before its mutants: one that
is not credited says nothing, and its mutants are left out.

Every mutant has a witness (tests/mutants/witness.py), so PASSED is a miss. The clock is short unless --clock is full:
it decides about correctness only in that fewer timed outputs are compared, which is where faults that come and go are
found. Mutants in Triton need a GPU, or Triton on this machine, which then interprets; those in CUDA are emulated where
there is no GPU; those in C need the CPU.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.util
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kbenv import Evaluator
from kbenv.errors import SandboxError
from kbenv.protocol import Protocol, get_protocol
from tests.mutants.corpus import SPLITS, from_record, load_manifest, load_seeds, stand_alone

BRISK = {
    "warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 4, "runner_pairs": 2, "slow_runner_pairs": 2,
    "turns_per_pair": 3, "single_call_turns": 4, "bootstrap_resamples": 200, "max_slots": 16, "target_turn_ms": 2.0,
}  # fmt: skip
CREDITED, REFUSED = "PASSED", "no verdict"

Record = dict[str, Any]


def make_protocol(name: str, clock: str) -> Protocol:
    """The preset, with a short clock unless `clock` is "full"."""
    protocol = get_protocol(name, require_custom_kernel=False)
    if clock == "full":
        return protocol
    known = {field: value for field, value in BRISK.items() if hasattr(protocol.timing, field)}
    return protocol.model_copy(update={"timing": protocol.timing.model_copy(update=known)})


def runs_on(record: Record, device: str) -> bool:
    """Whether a mutant's kernel can run there."""
    if device == "cpu":
        return record["language"] != "triton" or importlib.util.find_spec("triton") is not None
    core = from_record(record).seed.problem.startswith("core/")  # of other sizes on a GPU: no witness there
    return record["language"] != "c" and not core


def draw(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()


def judge(evaluator: Evaluator, problem: str, source: str) -> Record:
    started = time.monotonic()
    try:
        verdict = evaluator.evaluate(problem, source)
        failed = next((check.name for check in verdict.checks if check.passed is False), None)
        found = {
            "status": verdict.status.value,
            "stage": verdict.stage,
            "check": failed,
            "message": verdict.message[:200],
        }
    except SandboxError as e:
        found = {"status": REFUSED, "stage": None, "check": None, "message": f"{type(e).__name__}: {e}"[:200]}
    return found | {"seconds": round(time.monotonic() - started, 2)}


def run(options: argparse.Namespace) -> None:
    """Judges what has no line yet in the file of this protocol, split and device."""
    options.verdicts.mkdir(parents=True, exist_ok=True)
    with Evaluator(
        protocol=make_protocol(options.protocol, options.clock), device=options.device, sandbox=options.sandbox
    ) as evaluator:
        kind = evaluator.device.split(":")[0]
        path = options.verdicts / f"{options.protocol}-{options.split}-{kind}.jsonl"
        done = {line["id"]: line["status"] for line in read(path)}
        records = [r for r in load_manifest() if r["split"] == options.split and runs_on(r, kind)]
        records = sorted(records, key=lambda record: draw(record["id"]))[: options.limit]
        part, parts = options.shard
        records = [r for r in records if int(draw(r["seed"]), 16) % parts == part % parts]
        seeds = {seed.name: seed for seed in load_seeds()}
        with open(path, "a") as file:

            def note(line: Record) -> None:
                done[line["id"]] = line["status"]
                file.write(json.dumps(line) + "\n")
                file.flush()

            for number, record in enumerate(records, start=1):
                if record["id"] in done:
                    continue
                seed = seeds[record["seed"]]
                if seed.name not in done:
                    note({"id": seed.name} | judge(evaluator, seed.problem, stand_alone(seed.text)))
                if done[seed.name] != CREDITED:
                    continue
                line = {"id": record["id"]} | judge(evaluator, seed.problem, from_record(record).source)
                note(line)
                print(f"{number}/{len(records)} {line['id']}: {line['status']} ({line['seconds']} s)", flush=True)


def shard(text: str) -> tuple[int, int]:
    part, parts = map(int, text.split("/"))
    if not 0 < part <= parts:
        raise ValueError(f"expected K/N with K from 1 to N; found {text!r}")
    return part, parts


def read(path: Path) -> list[Record]:
    """The lines of a file; a last one that was cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines if line.endswith("}")]


def upper_bound(misses: int, judged: int, confidence: float = 0.95) -> float:
    """Clopper and Pearson's exact one-sided upper bound of a proportion."""
    if judged == 0 or misses >= judged:
        return 1.0

    def at_most(p: float) -> float:
        """The chance of so few misses where each has chance `p`."""
        logs = [
            math.lgamma(judged + 1) - math.lgamma(k + 1) - math.lgamma(judged - k + 1)
            + k * math.log(p) + (judged - k) * math.log1p(-p)
            for k in range(misses + 1)
        ]  # fmt: skip
        return sum(map(math.exp, logs))

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(middle) > 1 - confidence else (low, middle)
    return high


def table(folder: Path) -> Iterator[str]:
    """Markdown: a row for each protocol, split and device, then operators, languages and what was missed."""
    mutants = {record["id"]: record for record in load_manifest()}
    files = {path.stem: read(path) for path in sorted(folder.glob("*.jsonl"))}
    judged = {
        name: [line for line in lines if line["id"] in mutants and line["status"] != REFUSED]
        for name, lines in files.items()
    }
    yield (
        "| protocol, split, device | judged | credited though wrong | at most (95%) | of those that show plainly "
        "| of the others | seeds not credited |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, lines in judged.items():
        missed = [line for line in lines if line["status"] == CREDITED]
        plain = [line for line in lines if shows(mutants[line["id"]])]
        hidden = [line for line in lines if not shows(mutants[line["id"]])]
        refused = [line["id"] for line in files[name] if line["id"] not in mutants and line["status"] != CREDITED]
        yield (
            f"| {name.replace('-', ', ', 1)} | {len(lines)} | {share(missed, lines)} | "
            f"{100 * upper_bound(len(missed), len(lines)):.2f}% | {share([m for m in missed if m in plain], plain)} | "
            f"{share([m for m in missed if m in hidden], hidden)} | {', '.join(refused) or 'none'} |"
        )
    for title, key in (("kind of fault", "operator"), ("language", "language")):
        yield f"\n| {title} | " + " | ".join(judged) + " |\n|---|" + "---|" * len(judged)
        groups = defaultdict(lambda: defaultdict(list))
        for name, lines in judged.items():
            for line in lines:
                groups[mutants[line["id"]][key]][name].append(line)
        for group in sorted(groups):
            cells = (groups[group][name] for name in judged)
            yield (
                f"| {group} | "
                + " | ".join(share([x for x in c if x["status"] == CREDITED], c) if c else "" for c in cells)
                + " |"
            )
    for name, lines in judged.items():
        missed = [mutants[line["id"]] for line in lines if line["status"] == CREDITED]
        yield f"\nMissed by {name}:\n"
        for record in sorted(missed, key=lambda record: (record["operator"], record["id"])):
            w = record["witness"]
            moved = f" and {len(w['moves'])} moves" if w["moves"] else ""
            yield (
                f"- `{record['id']}` ({record['note']}): {w['family']}{moved}, parameters {w['parameters']}, "
                f"{w['score']:.3g} times what is allowed"
            )


def shows(record: Record) -> bool:
    """Whether the fault shows on the problem's own draws."""
    return record["base_score"] > 1


def share(part: Sequence[Any], whole: Sequence[Any]) -> str:
    return f"{len(part)}/{len(whole)} ({100 * len(part) / len(whole):.1f}%)" if whole else "0/0"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", help="judge by this one")
    parser.add_argument("--split", choices=SPLITS, default="tune")
    parser.add_argument("--limit", type=int, help="the first so many in the order of a hash")
    parser.add_argument("--shard", type=shard, default=(0, 1), metavar="K/N", help="of N parts, by seed, the K-th")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sandbox", default="process")
    parser.add_argument("--clock", choices=("brisk", "full"), default="brisk")
    parser.add_argument("--verdicts", type=Path, default=Path("runs/mutants"))
    parser.add_argument("--table", type=Path, help="write the table of all verdicts there")
    options = parser.parse_args(argv)
    if options.protocol:
        run(options)
    if options.table:
        counts = Counter(record["split"] for record in load_manifest())
        head = f"# mutants\n\n{datetime.date.today()}; {dict(counts)} in tests/mutants/manifest.jsonl\n\n"
        options.table.write_text(head + "\n".join(table(options.verdicts)) + "\n")


if __name__ == "__main__":
    main()
