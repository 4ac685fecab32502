"""Prints rows: a table for a person at a terminal, plain tab-separated lines for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints `rows` to standard output.

    At a terminal the first column is never cut, and the others fold where the width is short; a newline in a cell
    breaks its line. In a pipe every row is one line without header, its cells whole and separated by tabs.
    """
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        table.add_column(header, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a bracket in a cell is no markup
    Console().print(table)
