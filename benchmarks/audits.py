"""The audits of KernelBench in one table, beside what others have found out about its problems.

kbenv problems audit 'kernelbench/*' --device cuda --out audits.jsonl
python benchmarks/audits.py audits.jsonl --out benchmarks/results/kernelbench-audit.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kbenv.audit import Audit, is_random
from kbenv.audit_fact import Distribution
from kbenv.cli.audit import row


def zeros_pass(audit: Audit, tolerance: float) -> bool:
    """Whether an output of zeros is within that tolerance, absolute and relative, of the plain draw's output."""
    if audit.given is None:
        return False
    needed = [output.tolerances.zeros for output in audit.given.outputs]
    return all(zeros is not None and zeros <= tolerance for zeros in needed)


def is_nonfinite(audit: Audit, name: str) -> bool:
    found: list[Distribution] = [d for d in audit.given.distributions if d.name == name] if audit.given else []
    return any(not d.is_finite for d in found)


CLAIMS: dict[str, tuple[tuple[str, ...], Callable[[Audit], bool]]] = {
    "output constant": (
        ("2/23", "2/80", "2/83"),
        lambda audit: any(finding.kind in ("constant", "constant-on-plain", "independent") for finding in
                          (*audit.degenerate, *audit.notes)),
    ),
    "zeros pass at 1e-4": (
        ("1/23", "2/9", "2/23", "2/38", "2/80", "2/83"), lambda audit: zeros_pass(audit, 1e-4),
    ),
    "zeros pass at 1e-2": (
        ("1/23", "1/37", "1/39", "1/53", "2/9", "2/23", "2/38", "2/66", "2/77", "2/80", "2/83", "2/84", "2/99"),
        lambda audit: zeros_pass(audit, 1e-2),
    ),
    "parameters that are identities": (
        ("2/38", "2/84", "2/85", "3/20", "3/30", "3/32"), lambda audit: bool(audit.identity_kinds),
    ),
    "random forward": (("2/66", "2/83", "3/35"), is_random),
    "NaN or infinity on D2": (("1/90",), lambda audit: is_nonfinite(audit, "D2")),
    "NaN or infinity on D4": (("1/98",), lambda audit: is_nonfinite(audit, "D4")),
}  # fmt: skip
"""By claim: the level and number of the problems that it was made of before, and what an audit says of it."""


def short(problem: str) -> str:
    """kernelbench/level1/23 as 1/23."""
    return re.sub(r"^kernelbench/level", "", problem)


def order(problem: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", problem)))


def table(audits: list[Audit]) -> Iterator[str]:
    """Markdown: sums, the claims, then a line for each problem."""
    degenerate = [audit for audit in audits if audit.degenerate]
    yield f"{len(audits)} problems, {len(degenerate)} degenerate: " + ", ".join(short(a.problem) for a in degenerate)
    yield "\n| claim | known of | found here | known, not found | found besides |\n|---|---|---|---|---|"
    audited = {short(audit.problem) for audit in audits}
    for claim, (known, holds) in CLAIMS.items():
        found = [short(audit.problem) for audit in audits if holds(audit)]
        missing = [problem for problem in known if problem in audited and problem not in found]
        besides = [problem for problem in found if problem not in known]
        cells = (known, [problem for problem in found if problem in known], missing, besides)
        yield f"| {claim} | " + " | ".join(", ".join(cell) for cell in cells) + " |"
    yield "\n| problem | verdict | ms | MiB | RMS | error | notes |\n|---|---|---|---|---|---|---|"
    for audit in audits:
        yield "| " + " | ".join(row(audit)) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    audits: dict[str, Audit] = {}
    for path in options.files:
        for line in path.read_text().splitlines():
            audit = Audit.model_validate_json(line)
            audits[audit.problem] = audit
    listed = [audits[problem] for problem in sorted(audits, key=order)]
    machine, versions = listed[0].hardware, listed[0].software
    head = f"{machine.name}, driver {machine.driver}; torch {versions.get('torch')}, kbenv {versions.get('kbenv')}."
    made = "`kbenv problems audit 'kernelbench/*' --device cuda --sandbox process --out audits.jsonl`; `ms` is the"
    text = ["# Audit of KernelBench, levels 1 to 3\n", head, f"{made} reference alone, MiB its peak. {options.note}\n"]
    options.out.write_text("\n".join([*text, *table(listed)]) + "\n")
    print(f"{len(listed)} problems")
    return 0


if __name__ == "__main__":
    sys.exit(main())
