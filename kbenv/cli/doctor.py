"""`kbenv doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from kbenv.cli.table import print_table


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="what this machine has, and what is missing",
        description="What this machine has of what kbenv uses, what is missing, and what to do about it. Exit code 0 "
        "when kbenv can judge on the CPU at least, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(func=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from kbenv.doctor import can_judge_on_cpu, examine

    findings = examine()
    can_judge = can_judge_on_cpu(findings)
    if arguments.json:
        report = {"can_judge_on_cpu": can_judge, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(report, indent=2))
    else:
        rows = [
            (finding.name, finding.state, f"{finding.found}\n-> {finding.advice}" if finding.advice else finding.found)
            for finding in findings
        ]
        print_table(("WHAT", "STATE", "FOUND, AND WHAT TO DO"), rows)
    return 0 if can_judge else 1
