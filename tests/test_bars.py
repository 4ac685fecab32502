"""The seconds of a verdict as bars: proportional, complete, and whole on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from kbenv.cli.bars import NARROWEST_BAR, Bars, bar

SECONDS = {"reference": 0.5, "reference-alone": 1.0, "standard": 0.25, "timing": 2.25, "memory": 0.0}


def drawn(width: int, seconds: dict[str, float] = SECONDS, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width).print(Bars(seconds))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [20, 24, 30, 33, 36, 40, 60, 80, 200])
def test_every_phase_has_its_line_and_none_is_wider_than_the_terminal(width):
    lines = drawn(width)
    assert len(lines) == len(SECONDS) + 1
    assert all(cell_len(line) <= width for line in lines)
    for line, (name, seconds) in zip(lines, SECONDS.items(), strict=False):
        assert line.split()[0][:1] == name[0]
        assert f"{seconds:.2f} s" in line
    assert "4.00 s 100%" in lines[-1]


@pytest.mark.parametrize("width", [36, 60, 200])
def test_bars_are_as_long_as_their_phases(width):
    lengths = [line.count("█") for line in drawn(width)]
    assert max(lengths) == lengths[3] >= NARROWEST_BAR
    assert lengths[1] == pytest.approx(lengths[3] / 2.25, abs=1)
    assert lengths[4:] == [0, 0]


def test_a_terminal_without_blocks_gets_other_marks():
    lines = drawn(60, encoding="ascii")
    assert max(line.count("#") for line in lines) > 10


def test_nothing_took_any_time():
    assert all("0%" in line for line in drawn(40, {"reference": 0.0}))


def test_a_bar_is_told_to_the_eighth_of_a_cell():
    assert bar(0.5, 4, blocks=True) == "██"
    assert bar(1 / 32, 4, blocks=True) == "▏"
    assert bar(0.0, 4, blocks=True) == ""
    assert bar(0.5, 4, blocks=False) == "##"
