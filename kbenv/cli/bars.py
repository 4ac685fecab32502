"""Where a verdict's time went: seconds by phase of the judge as bars, for terminals of any width."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

NARROWEST_BAR = 4
_GAP = 1
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
_PLAIN = "#"
"""Where the terminal's encoding has no blocks."""
_STYLE = Style(color="cyan")


class Bars:
    """A renderable: a line a phase, in the order in which they ran, and their sum.

    Where a line has no room for a bar of four cells, names are cut; where not even then, bars are left out.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        total = sum(self._seconds.values())
        rows = [*self._seconds.items(), ("total", total)]
        numbers = [f"{seconds:.2f} s {seconds / total if total else 0:>4.0%}" for _, seconds in rows]
        of_number = max(map(len, numbers))
        of_name = max(len(name) for name, _ in rows)
        of_bar = options.max_width - of_name - of_number - 2 * _GAP
        if of_bar < NARROWEST_BAR:
            of_name = max(1, of_name - (NARROWEST_BAR - of_bar))
            of_bar = options.max_width - of_name - of_number - 2 * _GAP
        longest = max(self._seconds.values(), default=0.0)
        for (name, seconds), number in zip(rows, numbers, strict=True):
            yield Segment(f"{name[:of_name]:<{of_name}} {number:>{of_number}}")
            if of_bar >= NARROWEST_BAR and name in self._seconds and longest > 0:
                yield Segment(" " + bar(seconds / longest, of_bar, blocks=not options.ascii_only), _STYLE)
            yield Segment.line()


def bar(share: float, width: int, *, blocks: bool) -> str:
    """`share` (0 to 1) of `width` cells, to the eighth of a cell where there are blocks."""
    eighths = round(share * width * 8)
    if not blocks:
        return _PLAIN * round(eighths / 8)
    return (_FULL * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
