"""From a model's answer to the kernel source in it.

Pure text handling: nothing is imported or run, and whether the source is any good is the judge's to say; a block is
parsed only to choose between two readings of an answer. Fences follow CommonMark, relaxed where models are: any
indentation, quoted blocks, an opening fence behind the text before it, and an answer cut off inside its last fence.
Reasoning is left out however a model marks it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from kbenv.problems.problem import parse_source

DONE = "<done/>"
"""What an agent writes, outside of its code, to end a multi-turn episode."""

_MODEL_NEW = re.compile(r"^[ \t]*(?:class[ \t]+ModelNew[ \t]*[(:\[]|ModelNew[ \t]*(?::[^=\n]+)?=)", re.MULTILINE)
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$", re.DOTALL)
_BEHIND_TEXT = re.compile(r"^(?=[ \t]*[^`~\s])([^`~\n]{1,300}(?<=[ \t:]))(`{3,}(?:python3?|py)[ \t]*)$", re.IGNORECASE)
_QUOTE = re.compile(r"^[ \t]{0,3}>[ \t]?")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#_]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PYTHON = frozenset({"python", "py", "python3", "py3", "pytorch", "triton"})
_MARKDOWN = frozenset({"markdown", "md"})
_THINK = (
    (r"<\|channel\|>(?:analysis|commentary)[^<]*<\|message\|>", r"<\|channel\|>final[^<]*<\|message\|>"),
    (r"<(?:thinking|thought|thoughts|reasoning|scratchpad|seed:think|reflection)>",
     r"</(?:thinking|thought|thoughts|reasoning|scratchpad|seed:think|reflection)>"),
    (r"<\|begin_of_thought\|>|\[THINK\]|◁think▷", r"<\|end_of_thought\|>|\[/THINK\]|◁/think▷"),
)  # fmt: skip
"""Other models' marks of reasoning, read as `<think>` and `</think>`."""
_MARKS = re.compile(
    r"<\|(?:im_end|im_start|eot_id|end|return|endoftext|end_of_text|end_of_solution|begin_of_solution)\|>(?:assistant)?"
    r"|<\|start\|>assistant|</s>|<｜end▁of▁sentence｜>|<end_of_turn>"
)
"""What a chat template should have taken away."""
_TAG = re.compile(r"<(code|answer|python|solution|kernel|source|file)\b[^>\n]*>[ \t]*\n")
_LOOK_BACK = 50
"""So many blocks are read a second time where a string seems to be open at their end, and so many tags are followed."""
_CALL = re.compile(r"<tool_call>")
_JSON_CHARACTERS = 1_000_000
"""Longer text is not looked into as JSON."""


@dataclass(frozen=True)
class _Block:
    """One fenced block: its language in lower case ("" for none), its dedented text, whether its fence was closed."""

    language: str
    text: str
    closed: bool


def extract_code(text: str) -> str | None:
    """The kernel source in a model's answer, or None when there is none.

    In this order: the last fenced block that defines `ModelNew` (one that was never closed, because the answer was cut
    off, only if it is whole or no other is); bare Python that defines it before any fence, or between tags such as
    `<code>`; a string in JSON that defines it (the arguments of a tool call that was written as text); the last closed
    block marked as Python; the last closed block marked as nothing. Reasoning is ignored (`<think>...</think>` and what
    other models write instead), as is everything after a leading `<think>` that is never closed, and everything before
    a `</think>` that was never opened (the chat template did).

    Args:
        text: any string; CRLF and CR count as line ends, a leading byte order mark is dropped.

    Returns:
        Source that is never blank, ends with a newline, and holds no lone surrogate (U+FFFD stands for each).
    """
    blocks, prose = _scan(text)
    defining = [block for block in blocks if _MODEL_NEW.search(block.text)]
    if defining:
        return _choose(defining).text
    bare = prose[0]
    if _MODEL_NEW.search(bare):
        return _untagged(bare)
    for block in (*(block.text for block in reversed(blocks)), *reversed(prose)):
        if (source := _in_json(block)) is not None:
            return source
    closed = [block for block in blocks if block.closed and block.text.strip()]
    for languages in (_PYTHON, frozenset({""})):
        for found in reversed(closed):
            if found.language in languages:
                return found.text
    return None


def says_done(text: str) -> bool:
    """Whether the answer holds `<done/>` outside of its reasoning and of its code."""
    _, prose = _scan(text)
    return any(DONE in part for part in prose)


def _choose(defining: list[_Block]) -> _Block:
    """The last block; the last closed one where the last was never closed and is no whole Python."""
    last = defining[-1]
    closed = [block for block in defining if block.closed]
    return last if last.closed or not closed or _parses(last.text) else closed[-1]


def _parses(source: str) -> bool:
    try:
        parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _untagged(bare: str) -> str:
    """Bare Python without the tags around it and without what ends an episode."""
    tagged = [text for text in _between(bare, _TAG, "</{}>") if _MODEL_NEW.search(text)]
    return _finished(line for line in (tagged[-1] if tagged else bare).split("\n") if line.strip() != DONE)


def _between(text: str, opening: re.Pattern[str], closing: str) -> Iterator[str]:
    """What stands between the first openings and their closings, in which {} is the opening's first group."""
    for match in islice(opening.finditer(text), _LOOK_BACK):
        end = text.find(closing.format(*match.groups()), match.end())
        if end >= 0:
            yield text[match.end() : end]


def _in_json(text: str) -> str | None:
    """The longest string that defines `ModelNew` in a text that is JSON, or a tool call written as text."""
    if "ModelNew" not in text or len(text) > _JSON_CHARACTERS:
        return None
    for candidate in (text, *_between(text, _CALL, "</tool_call>")):
        if not candidate.lstrip().startswith(("{", "[")):
            continue
        try:
            found = [string for string in _strings(json.loads(candidate)) if _MODEL_NEW.search(string)]
        except (ValueError, RecursionError):
            continue
        if found:
            source = max(found, key=len)
            return extract_code(source) if "```" in source else _finished(iter(source.split("\n")))
    return None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield _SURROGATE.sub("\ufffd", value)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


@lru_cache(maxsize=4)  # of one answer it is asked several times
def _scan(text: str) -> tuple[Sequence[_Block], Sequence[str]]:
    """The fenced blocks, and the prose around them: `prose[0]` lies before the first fence."""
    text = _SURROGATE.sub("\ufffd", text.removeprefix("\ufeff")).replace("\r\n", "\n").replace("\r", "\n")
    lines = list(_unquoted(_visible_lines(_without_marks(text))))
    blocks: list[_Block] = []
    prose: list[list[str]] = [[]]
    position = 0
    while position < len(lines):
        opening = _opening(lines[position])
        if opening is None:
            prose[-1].append(lines[position])
            position += 1
            continue
        start = position + 1
        block, position = _read_block(lines, start, opening)
        if len(blocks) < _LOOK_BACK and _in_string(block.text):
            longer, end = _read_block(lines, start, opening, through_strings=True)
            if longer.closed:
                block, position = longer, end
        blocks += _unwrapped(block)
        prose.append([])
    return blocks, ["\n".join(part) for part in prose]


def _without_marks(text: str) -> str:
    """Every way to mark reasoning as `<think>`, and without the marks of chat templates."""
    for opening, closing in _THINK:
        if re.search(closing, text):
            text = re.sub(opening, "<think>", re.sub(closing, "</think>", text))
    return _MARKS.sub("", text)


def _unquoted(lines: Iterator[str]) -> Iterator[str]:
    """The lines with opening fences on lines of their own, and without the `>` of a quotation that holds fences."""
    shown = list(lines)
    quoting = any(_QUOTE.match(line) and _FENCE.match(_QUOTE.sub("", line)) for line in shown)
    fence: re.Match[str] | None = None
    for line in shown:
        text = _QUOTE.sub("", line) if quoting else line
        if fence is not None:
            yield text
            fence = None if _closes(text, fence) else fence
            continue
        behind = _BEHIND_TEXT.match(text)
        if behind is not None:
            yield behind[1]
            text = behind[2]
        yield text
        fence = _opening(text)


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


def _read_block(
    lines: list[str], start: int, opening: re.Match[str], *, through_strings: bool = False
) -> tuple[_Block, int]:
    """The block after an opening fence, and the position after it.

    A fence of the same kind that names Python ends the block too: models forget to close the one before. With
    `through_strings` no fence ends it inside a string in triple quotes: docstrings hold examples.
    """
    body: list[str] = []
    position = start
    closed = inside = False
    while position < len(lines):
        line = lines[position]
        if not inside:
            if _closes(line, opening):
                position, closed = position + 1, True
                break
            nested = _opening(line)
            if nested is not None and nested[2] == opening[2] and _language(nested) in _PYTHON:
                break
        inside ^= through_strings and _in_string(line)
        body.append(line)
        position += 1
    if not closed and position == len(lines):
        body, closed = _without_fence_behind_code(body, opening)
    # As far as the fence is indented, and no further than the code: one shift for all lines, since indentation counts.
    indent = min([len(opening[1]), *(len(line) - len(line.lstrip(" \t")) for line in body if line.strip())])
    text = _finished(line[indent:] for line in body)
    return _Block(language=_language(opening), text=text, closed=closed), position


def _in_string(text: str) -> bool:
    """Whether a string in triple quotes is open at the end of `text`, by their number."""
    return (text.count('"""') + text.count("'''")) % 2 == 1


def _without_fence_behind_code(body: list[str], opening: re.Match[str]) -> tuple[list[str], bool]:
    """A block that was never closed, cut where its closing fence stands behind code; and whether there was one."""
    for number, line in enumerate(body):
        if line.rstrip().endswith(opening[2]):
            return [*body[:number], line.rstrip().removesuffix(opening[2])], True
    return body, False


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
