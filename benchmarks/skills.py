"""What each skill of the library gains: judges the two answers of its pair, and compares them.

    python benchmarks/skills.py --seconds 540
    python benchmarks/skills.py --table

The first judges, under `verified`, what has no verdict yet, appends a line for each to
a file of runs/skills, and writes the table; run again, it goes on where it stopped. An answer whose source has
changed is judged again. The second only writes the table, benchmarks/results/skills.md, from all such files. On a GPU
the pairs in CUDA, in Triton and of PyTorch's operators are judged, on a CPU those in C.

The effect is the ratio of the two speedups over PyTorch, each measured against the reference in its own job, so that a
device that was slower for a while cancels out. Its interval is the widest that the two intervals allow.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbenv import Evaluator
from kbenv.agents.skills.feature import extract_features
from kbenv.agents.skills.library import Skill, load_library, read_kernel
from kbenv.errors import SandboxError
from kbenv.problems import load_problem
from kbenv.protocol import get_protocol
from kbenv.verdict import Verdict

RESULTS = Path("benchmarks/results/skills.md")
HEAD = ("skill", "problem", "before", "ms", "after", "ms", "effect", "memory", "shows", "precondition before/after")

Lines = Mapping[str, dict[str, Any]]
"""The last line of each answer, by its name."""


def answers(kind: str) -> Iterator[tuple[str, str]]:
    """Problem and kernel of each answer that runs on such a device, each once, pair by pair."""
    seen = set()
    for skill in load_library():
        for kernel in (skill.pair.before, skill.pair.after):
            answer = (skill.pair.problem, kernel)
            if ("_c_" in kernel) == (kind == "cpu") and answer not in seen:
                seen.add(answer)
                yield answer


def fingerprint(kernel: str) -> str:
    return hashlib.sha256(read_kernel(kernel).encode()).hexdigest()


def read(path: Path) -> Lines:
    """The lines that are whole and of the sources as they are now."""
    lines = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # the last one, when a run was killed
            continue
        lines[line["kernel"]] = line
    return {kernel: line for kernel, line in lines.items() if line["source"] == fingerprint(kernel)}


def judge(options: argparse.Namespace) -> None:
    """Judges what has no line yet, while there is time."""
    deadline = time.monotonic() + options.seconds
    protocol = get_protocol(options.protocol, require_custom_kernel=False)
    protocol = protocol.with_effort("quick" if options.short else "full")
    options.runs.mkdir(parents=True, exist_ok=True)
    with Evaluator(protocol=protocol, device=options.device, sandbox=options.sandbox) as evaluator:
        kind = evaluator.device.split(":")[0]
        path = options.runs / f"{options.protocol}-{kind}.jsonl"
        done = {
            kernel for kernel, line in read(path).items() if line["verdict"]
        }  # a fault of the machine is tried again
        wanted = [answer for answer in answers(kind) if answer[1] not in done]
        for number, (problem, kernel) in enumerate(wanted, start=1):
            if time.monotonic() > deadline:
                print(f"{len(wanted) - number + 1} answers are left: run again", flush=True)
                return
            began = time.monotonic()
            try:
                verdict = evaluator.evaluate(problem, read_kernel(kernel)).model_dump(mode="json")
                said = verdict["status"]
            except SandboxError as e:
                verdict, said = None, f"no verdict: {e}"
            with path.open("a") as file:
                file.write(json.dumps({"kernel": kernel, "source": fingerprint(kernel), "verdict": verdict}) + "\n")
            print(f"{number}/{len(wanted)} {kernel}: {said[:200]} ({time.monotonic() - began:.1f} s)", flush=True)


def write_table(options: argparse.Namespace) -> None:
    """One table of all devices whose answers were judged."""
    parts = ["# skills\n\nWhat each skill of agents/skills gains, by `python benchmarks/skills.py`.\n"]
    for path in sorted(options.runs.glob("*.jsonl")):
        lines = read(path)
        rows = [row for skill in load_library() if (row := make_row(skill, lines)) is not None]
        if rows:
            shown = sum(row[8] == "yes" for row in rows)
            parts.append(f"## {machine(lines)}\n\n{shown} of {len(rows)} pairs show their effect.\n")
            table = [HEAD, ("---",) * len(HEAD), *rows]
            parts.append("\n".join("| " + " | ".join(row) + " |" for row in table) + "\n")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text("\n".join(parts))
    print(options.results.read_text())


def machine(lines: Lines) -> str:
    verdict = next(line["verdict"] for line in lines.values() if line["verdict"])
    hardware, software = verdict.get("hardware") or {}, verdict.get("software") or {}
    return (
        f"{datetime.date.today()}; {hardware.get('name')}; torch {software.get('torch')}; {verdict['protocol']['name']}"
    )


def make_row(skill: Skill, lines: Lines) -> tuple[str, ...] | None:
    """A row of the table; None where neither answer was judged.

    "shows" is yes where both are credited and the effect's interval lies above one, or, for a skill that saves memory
    alone, where less memory was needed.
    """
    before, after = (_verdict(lines, name) for name in (skill.pair.before, skill.pair.after))
    if skill.pair.before not in lines and skill.pair.after not in lines:
        return None
    effect, memory, shows = "", "", "no"
    if before and after and before.speedup and after.speedup:
        value, low, high = (
            after.speedup.value / before.speedup.value,
            after.speedup.low / before.speedup.high,
            after.speedup.high / before.speedup.low,
        )
        effect = f"{value:.3g}x [{low:.3g}, {high:.3g}]"
        saved = 1.0
        if before.memory and after.memory:
            saved = before.memory.submission_peak_bytes / max(1, after.memory.submission_peak_bytes)
            memory = f"{saved:.2f}x less" if saved > 1.01 else f"{1 / saved:.2f}x more" if saved < 0.99 else "same"
        credited = before.credited and after.credited
        shows = "yes" if credited and (low > 1.0 or (skill.gain == 1 and saved > 1.01)) else "no"
    return (
        skill.id, skill.pair.problem, skill.pair.before, _told(before), skill.pair.after, _told(after), effect, memory,
        shows, f"{_applies(skill, skill.pair.before, before)}/{_applies(skill, skill.pair.after, after)}",
    )  # fmt: skip


def _verdict(lines: Lines, kernel: str) -> Verdict | None:
    found = lines.get(kernel)
    return Verdict.model_validate(found["verdict"]) if found and found["verdict"] else None


def _told(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not judged"
    return f"{verdict.latency_ms:.4g}" if verdict.credited and verdict.latency_ms else verdict.status.value


def _applies(skill: Skill, kernel: str, verdict: Verdict | None) -> str:
    """Whether its precondition holds with what was measured."""
    if verdict is None:
        return "?"
    reference = load_problem(skill.pair.problem).source_for("cpu" if "_c_" in kernel else "cuda")
    return "holds" if skill.applies(extract_features(reference, read_kernel(kernel), verdict)) else "not"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write the table, judge nothing")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no verdict after so many seconds")
    parser.add_argument("--short", action="store_true", help="a short clock: sooner done, and wider intervals")
    parser.add_argument("--protocol", default="verified")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs/skills"), metavar="DIR", help="where verdicts are kept")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    if not options.table:
        judge(options)
    write_table(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
