"""From a model's answer to the kernel source in it.

Pure text handling: nothing is parsed as Python, imported or run, and whether the source is any good is the judge's to
say. Fences follow CommonMark, relaxed where models are: any indentation, and an answer cut off inside its last fence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

DONE = "<done/>"
"""What an agent writes, outside of its code, to end a multi-turn episode."""

_MODEL_NEW = re.compile(r"^[ \t]*class[ \t]+ModelNew[ \t]*[(:\[]", re.MULTILINE)
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$", re.DOTALL)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#_]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PYTHON = frozenset({"python", "py", "python3", "py3", "pytorch", "triton"})
_MARKDOWN = frozenset({"markdown", "md"})


@dataclass(frozen=True)
class _Block:
    """One fenced block: its language in lower case ("" for none), its dedented text, whether its fence was closed."""

    language: str
    text: str
    closed: bool


def extract_code(text: str) -> str | None:
    """The kernel source in a model's answer, or None when there is none.

    In this order: the last fenced block that defines `class ModelNew` (a last fence may be unterminated: an answer that
    was cut off); bare Python with `class ModelNew` before any fence; the last closed block marked as Python; the last
    closed block marked as nothing. Text inside `<think>...</think>` is ignored, as is everything after a leading
    `<think>` that is never closed, and everything before a `</think>` that was never opened (the chat template did).

    Args:
        text: any string; CRLF and CR count as line ends, a leading byte order mark is dropped.

    Returns:
        Source that is never blank, ends with a newline, and holds no lone surrogate (U+FFFD stands for each).
    """
    blocks, prose = _scan(text)
    for block in reversed(blocks):
        if _MODEL_NEW.search(block.text):
            return block.text
    bare = prose[0]
    if _MODEL_NEW.search(bare):
        return _finished(line for line in bare.split("\n") if line.strip() != DONE)
    closed = [block for block in blocks if block.closed and block.text.strip()]
    for languages in (_PYTHON, frozenset({""})):
        for block in reversed(closed):
            if block.language in languages:
                return block.text
    return None


def says_done(text: str) -> bool:
    """Whether the answer holds `<done/>` outside of its reasoning and of its code."""
    _, prose = _scan(text)
    return any(DONE in part for part in prose)


def _scan(text: str) -> tuple[list[_Block], list[str]]:
    """The fenced blocks, and the prose around them: `prose[0]` lies before the first fence."""
    text = _SURROGATE.sub("\ufffd", text.removeprefix("\ufeff")).replace("\r\n", "\n").replace("\r", "\n")
    lines = list(_visible_lines(text))
    blocks: list[_Block] = []
    prose: list[list[str]] = [[]]
    position = 0
    while position < len(lines):
        opening = _opening(lines[position])
        if opening is None:
            prose[-1].append(lines[position])
            position += 1
            continue
        block, position = _read_block(lines, position + 1, opening)
        blocks += _unwrapped(block)
        prose.append([])
    return blocks, ["\n".join(part) for part in prose]


def _visible_lines(text: str) -> Iterator[str]:
    """The lines that are no reasoning. Tags inside a fence are code, unless a `</think>` stands alone on its line."""
    if text.lstrip().startswith("<think>") and "</think>" not in text:
        return
    pending: list[str] = []
    thinking = False
    fence: re.Match[str] | None = None
    rest = text.split("\n")
    last_close = max((number for number, line in enumerate(rest) if "</think>" in line), default=-1)
    for number, line in enumerate(rest):
        if fence is not None and line.strip() != "</think>":
            pending.append(line)
            if _closes(line, fence):
                fence = None
            continue
        visible, thinking, restart = _without_reasoning(line, thinking, may_open=number <= last_close)
        if restart:
            pending, fence = [], None
        if visible is None:
            continue
        pending.append(visible)
        fence = _opening(visible)
    yield from pending


def _without_reasoning(line: str, thinking: bool, *, may_open: bool) -> tuple[str | None, bool, bool]:
    """A line's visible part, None when all of it is reasoning; whether reasoning goes on; whether all before it was."""
    kept: list[str] = []
    restart = False
    touched = thinking
    for token in re.split(r"(</?think>)", line):
        if token == "<think>" and may_open and not thinking:
            thinking = touched = True
        elif token == "</think>":
            if not thinking:
                kept, restart = [], True
            thinking, touched = False, True
        elif not thinking:
            kept.append(token)
    visible = "".join(kept)
    return (None if touched and not visible.strip() else visible), thinking, restart


def _opening(line: str) -> re.Match[str] | None:
    match = _FENCE.match(line)
    if match is None or (match[2][0] == "`" and "`" in match[3]):
        return None
    return match


def _closes(line: str, opening: re.Match[str]) -> bool:
    match = _FENCE.match(line)
    return match is not None and match[2].startswith(opening[2]) and not match[3].strip()


def _language(opening: re.Match[str]) -> str:
    match = _LANGUAGE.match(opening[3].strip().lstrip("{.").lower())
    return match[0] if match else ""


def _read_block(lines: list[str], start: int, opening: re.Match[str]) -> tuple[_Block, int]:
    """The block after an opening fence, and the position after it.

    A fence of the same kind that names Python ends the block too: models forget to close the one before.
    """
    body: list[str] = []
    position = start
    closed = False
    while position < len(lines):
        line = lines[position]
        if _closes(line, opening):
            position, closed = position + 1, True
            break
        nested = _opening(line)
        if nested is not None and nested[2] == opening[2] and _language(nested) in _PYTHON:
            break
        body.append(line)
        position += 1
    # As far as the fence is indented, and no further than the code: one shift for all lines, since indentation counts.
    indent = min([len(opening[1]), *(len(line) - len(line.lstrip(" \t")) for line in body if line.strip())])
    text = _finished(line[indent:] for line in body)
    return _Block(language=_language(opening), text=text, closed=closed), position


def _unwrapped(block: _Block) -> list[_Block]:
    """The blocks inside a block that quotes Markdown, else the block itself; one level, as answers have."""
    if block.language not in _MARKDOWN:
        return [block]
    lines = block.text.split("\n")
    inner: list[_Block] = []
    position = 0
    while position < len(lines):
        opening = _opening(lines[position])
        position += 1
        if opening is not None:
            nested, position = _read_block(lines, position, opening)
            inner.append(nested)
    return inner


def _finished(lines: Iterator[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
