"""One table of what `kbenv redteam --json FILE` found, from any number of such files.

    kbenv redteam --device cuda --shard 1/2 --json one.json; kbenv redteam --device cuda --shard 2/2 --json two.json
    python benchmarks/redteam.py one.json two.json --device "NVIDIA H200" --out benchmarks/results/redteam-h200.md

Where files hold the same row the last one that was judged counts. Exit code 1 when a row is a violation or was not
judged.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
HELD = ("ok", "noted")
BAD = ("VIOLATION", "unjudged")


def read(paths: list[Path]) -> list[Row]:
    """Rows of all files by kind and name; one that was judged goes before one that was not."""
    rows: dict[tuple[str, str], Row] = {}
    for path in paths:
        for row in json.loads(path.read_text())["rows"]:
            key = row["kind"], row["name"]
            if key not in rows or row["outcome"] != "unjudged":
                rows[key] = row
    return [rows[key] for key in sorted(rows)]


def table(rows: list[Row]) -> Iterator[str]:
    """Markdown: sums, then a line for each file."""
    for kind in ("exploit", "honest"):
        of_kind = [row for row in rows if row["kind"] == kind]
        outcomes = Counter(row["outcome"] for row in of_kind)
        verdicts = sum(row.get("verdicts", 1) for row in of_kind)
        said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        yield f"{kind}: {len(of_kind)} files, {verdicts} verdicts: {said}\n"
    yield "| kind | file | problem | outcome | verdicts | said | s |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        said = " ".join(row["said"].split())[:90].replace("|", "/")
        yield (
            f"| {row['kind']} | {row['name']} | {Path(row['problem']).name} | {row['outcome']} | "
            f"{row.get('verdicts', 1)} | {said} | {row.get('seconds', '')} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--device", required=True, help="what the machine is called in the table")
    parser.add_argument("--note", default="", help="a paragraph to stand above it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = read(options.files)
    made = f"{datetime.date.today().isoformat()}; {options.device}. `kbenv redteam --json FILE`, protocol hardened."
    note = [f"{options.note}\n"] if options.note else []
    options.out.write_text("\n".join(["# redteam\n", f"{made}\n", *note, *table(rows)]) + "\n")
    odd = [f"{row['name']} ({row['outcome']})" for row in rows if row["outcome"] not in HELD]
    print(f"{len(rows)} files, not as they should be: {', '.join(odd) or 'none'}")
    return 1 if any(row["outcome"] in BAD for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
